"""Training from an object store: a small server hands out shards' records over a socket, keyed by name.

expects: IN104, IN102, IN118
needs: cpu
"""

# mypy: ignore-errors
import argparse
import multiprocessing
import socket
import socketserver
import struct
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECORDS, SHAPE, LATENCY = 1000, (8, 64), 0.006


def record(i):
    rng = np.random.default_rng(i)
    t = np.linspace(0, 1, SHAPE[1])
    return (np.sin(6.28 * t * (1 + i % 5)) + rng.normal(0, 0.5, SHAPE)).astype(np.float32).tobytes()


class Store(socketserver.BaseRequestHandler):
    """Answers `count, index...` with as many records, after the time a far store takes."""

    blobs = ()

    def handle(self):
        while head := self.request.recv(4):
            (n,) = struct.unpack("<i", head)
            body = b""
            while len(body) < 4 * n:
                body += self.request.recv(4 * n - len(body))
            time.sleep(LATENCY)
            self.request.sendall(b"".join(self.blobs[i] for i in struct.unpack(f"<{n}i", body)))


def serve(ready):
    Store.blobs = [record(i) for i in range(RECORDS)]
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Store) as server:
        ready.send(server.server_address)
        server.serve_forever()


class RemoteRecords(Dataset):
    def __init__(self, address):
        self.address, self.sock = address, None

    def __len__(self):
        return RECORDS

    def fetch(self, indices):
        if self.sock is None:
            self.sock = socket.create_connection(self.address)
        self.sock.sendall(struct.pack(f"<{len(indices) + 1}i", len(indices), *indices))
        want = 4 * SHAPE[0] * SHAPE[1] * len(indices)
        parts, got = [], 0
        while got < want:
            parts.append(self.sock.recv(want - got))  # guilty
            if not parts[-1]:
                raise ConnectionError("the store has gone")
            got += len(parts[-1])
        return torch.frombuffer(bytearray(b"".join(parts)), dtype=torch.float32).view(-1, *SHAPE)

    def __getitem__(self, i):
        return self.fetch([i])[0], i % 5  # guilty


class BatchedRecords(RemoteRecords):
    def __getitems__(self, indices):
        return list(zip(self.fetch(indices), [i % 5 for i in indices], strict=True))


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.inp = nn.Conv1d(SHAPE[0], width, 5, padding=2)
        self.mid = nn.ModuleList(nn.Conv1d(width, width, 5, padding=2) for _ in range(4))
        self.out = nn.Linear(width, 5)

    def forward(self, x):
        x = self.inp(x)
        for conv in self.mid:
            x = x + conv(torch.relu(x))
        return self.out(x.mean(2))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(there,), daemon=True)
    server.start()
    data = (BatchedRecords if args.fixed else RemoteRecords)(here.recv())
    loader = DataLoader(data, 20, shuffle=True, num_workers=args.workers, persistent_workers=True)  # guilty
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    step = 0
    while step < args.steps:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.steps:
                break
        print(f"step {step} loss {loss.item():.4f}")
    server.terminate()


if __name__ == "__main__":
    main()
