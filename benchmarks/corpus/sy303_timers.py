"""A stopwatch that synchronises around every part of every step.

expects: SY303
needs: gpu
"""
# mypy: ignore-errors

import argparse
import time
from contextlib import contextmanager

import torch
from torch import nn


class Stopwatch:
    def __init__(self, exact):
        self.exact = exact and torch.cuda.is_available()
        self.total = {}

    @contextmanager
    def part(self, name):
        start = self.now()
        yield
        self.total[name] = self.total.get(name, 0.0) + self.now() - start

    def now(self):
        if self.exact:
            torch.cuda.synchronize()  # guilty
        return time.perf_counter()


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
if torch.cuda.is_available():
    torch.set_default_dtype(torch.bfloat16)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
width = 8192 if device.type == "cuda" else 256
with torch.device(device):
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0)
    frozen = nn.TransformerEncoder(layer, 6).requires_grad_(False)
    wide = nn.Sequential(nn.Linear(128, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
    x = torch.randn(64, 64, 128)
optimizer = torch.optim.SGD(wide.parameters(), 1e-4)
watch = Stopwatch(exact=not args.fixed)
for _ in range(args.steps):
    with watch.part("forward"):
        loss = wide(frozen(x)).square().mean()
    with watch.part("backward"):
        optimizer.zero_grad()
        loss.backward()
    with watch.part("optimizer"):
        optimizer.step()
