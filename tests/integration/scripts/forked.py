"""os.fork in the middle of training: the child looks at itself, trains on, and leaves by os._exit."""

from __future__ import annotations

import json
import os
import sys
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(TensorDataset(torch.randn(160, 8)), batch_size=8)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train(steps: int) -> None:
    for step, (x,) in enumerate(loader):
        if step == steps:
            return
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def handles() -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    return [path for path in found if path.endswith(".rec")]


train(10)
read_end, write_end = os.pipe()
child = os.fork()
if child == 0:
    os.close(read_end)
    before = {"threads": [t.name for t in threading.enumerate()], "tasks": len(os.listdir("/proc/self/task"))}
    facts = before | {"handles": handles(), "pid": os.getpid()}
    train(7)
    os.write(write_end, json.dumps(facts).encode())
    os._exit(0)
os.close(write_end)
told = os.read(read_end, 65536).decode()
_, status = os.waitpid(child, 0)
train(5)
print("CHILD " + told)
print(f"PARENT {os.getpid()}", flush=True)
sys.exit(os.waitstatus_to_exitcode(status))
