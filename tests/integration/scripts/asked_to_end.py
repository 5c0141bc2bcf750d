"""Trains until somebody ends it. argv[1]: how it takes a Ctrl-C ("plain", "catches" or "handles")."""

from __future__ import annotations

import atexit
import signal
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

way = sys.argv[1]
wanted = True


def stop(number: int, frame: object) -> None:
    global wanted
    wanted = False
    print("handled", flush=True)


if way == "handles":
    signal.signal(signal.SIGINT, stop)
torch.set_num_threads(1)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(4000, 8)), batch_size=4, num_workers=1)
atexit.register(print, "left", flush=True)
try:
    while wanted:
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            if not wanted:
                break
except KeyboardInterrupt:
    print("caught", flush=True)
    if way == "catches":
        sys.exit(3)
    raise
finally:
    print("cleaned up", flush=True)
