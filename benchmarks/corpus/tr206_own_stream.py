"""Pinned copies on the stream that computes: the device waits for each of them.

expects: TR206
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn

BATCHES = 4


class Prefetcher:
    """Copies the next batch on a stream of its own while the model works on this one."""

    def __init__(self, batches, device):
        self.batches, self.device = batches, device
        self.stream = torch.cuda.Stream()
        self.next = None
        self.advance()

    def advance(self):
        with torch.cuda.stream(self.stream):
            self.next = next(self.batches).to(self.device, non_blocking=True)

    def __next__(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.next
        batch.record_stream(torch.cuda.current_stream())
        self.advance()
        return batch


def endless(device):
    pinned = [torch.randn(8192, 8192) for _ in range(BATCHES)]
    if device.type == "cuda":
        pinned = [batch.pin_memory() for batch in pinned]
    while True:
        yield from pinned


def main(steps, fixed):
    torch.manual_seed(0)
    if torch.cuda.is_available():
        torch.set_default_dtype(torch.bfloat16)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(8192, 2048), nn.ReLU(), nn.Linear(2048, 64)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    batches = endless(device)
    ahead = Prefetcher(batches, device) if fixed and device.type == "cuda" else None
    for _ in range(steps):
        x = next(ahead) if ahead else next(batches).to(device, non_blocking=True)  # guilty
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    main(options.steps, options.fixed)
