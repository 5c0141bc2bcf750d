"""A regression that reports each step to the collector of a fleet and waits until it has been noted.

expects: SY305
needs: cpu
"""

# mypy: ignore-errors
import argparse
import json
import socketserver
import threading
import time
from socket import create_connection

import torch
from torch import nn


class Collector(socketserver.StreamRequestHandler):
    """Notes a line, and says so; it is some way off."""

    def handle(self):
        for line in self.rfile:
            json.loads(line)
            time.sleep(0.02)
            self.wfile.write(b"noted\n")


class Reporter:
    def __init__(self, address, every):
        self.lines = create_connection(address).makefile("rw")
        self.every = every

    def report(self, step, loss):
        if step % self.every:
            return
        self.lines.write(json.dumps({"step": step, "loss": loss}) + "\n")
        self.lines.flush()
        self.lines.readline()  # guilty


def batches(count, size, features):
    generator = torch.Generator().manual_seed(8)
    truth = torch.randn(features, 1, generator=generator)
    for _ in range(count):
        x = torch.randn(size, features, generator=generator)
        yield x, torch.tanh(x @ truth) + 0.1 * torch.randn(size, 1, generator=generator)


def train(steps, reporter):
    model = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (x, y) in enumerate(batches(steps, 256, 64)):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        reporter.report(step, loss.item())  # guilty
    print(f"final loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Collector) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        train(args.steps, Reporter(server.server_address, every=100 if args.fixed else 1))
        server.shutdown()


if __name__ == "__main__":
    main()
