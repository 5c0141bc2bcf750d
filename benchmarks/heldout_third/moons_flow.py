"""A RealNVP flow on two-dimensional points, with a journal of the run.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import json
import math
import os
import tempfile
import threading
import zlib

import torch
from torch import nn


class Coupling(nn.Module):
    def __init__(self, flip, hidden=96):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(
            nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2)
        )

    def forward(self, x):
        a, b = x.chunk(2, 1) if not self.flip else x.chunk(2, 1)[::-1]
        s, t = self.net(a).chunk(2, 1)
        s = torch.tanh(s)
        b = b * s.exp() + t
        return torch.cat([b, a] if self.flip else [a, b], 1), s.squeeze(1)


class RealNVP(nn.Module):
    def __init__(self, depth=6):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(i % 2 == 1) for i in range(depth))

    def nll(self, x):
        logdet = 0.0
        for layer in self.layers:
            x, s = layer(x)
            logdet = logdet + s
        return (0.5 * (x**2).sum(1) + math.log(2 * math.pi) - logdet).mean()


class Journal:
    def __init__(self, path, fixed):
        self.path, self.fixed = path, fixed
        self.rows, self.lock = [{"text": f"run started {i}"} for i in range(2500)], threading.Lock()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.keep, daemon=True)
        self.thread.start()

    def add(self, **row):
        with self.lock:  # guilty
            self.rows.append(row)  # guilty

    def keep(self):
        while not self.over.wait(1.0 if self.fixed else 0.02):
            if self.fixed:
                with self.lock:
                    rows = list(self.rows)
                self.store(rows)
            else:
                with self.lock:  # guilty
                    self.store(self.rows)  # guilty

    def store(self, rows):
        text = "\n".join(map(json.dumps, rows)).encode()  # guilty
        with open(self.path, "wb") as f:
            f.write(zlib.compress(text * 4, 9))  # guilty

    def close(self):
        self.over.set()
        self.thread.join()


def moons(n, g):
    angle = math.pi * torch.rand(n, generator=g)
    side = (torch.arange(n) % 2).float()
    x = torch.stack([angle.cos() + side, angle.sin() * (1 - 2 * side) + 0.3 * side], 1)
    return x + 0.08 * torch.randn(n, 2, generator=g)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(5)
    flow = RealNVP()
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(os.path.join(folder, "journal.z"), args.fixed)
        for step in range(args.steps):
            loss = flow.nll(moons(256, g))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            journal.add(step=step, loss=loss.item())  # guilty
            if step % 100 == 0:
                print(f"{step}: nll {loss.item():.4f}")
        journal.close()


if __name__ == "__main__":
    main()
