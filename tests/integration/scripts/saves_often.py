"""A training that saves under a passing name and renames; says who writes, and reads what it has written."""

import os
import time
from pathlib import Path

import psutil
import torch
from torch import nn

if __name__ == "__main__":
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    out = Path("out")
    out.mkdir(exist_ok=True)
    for step in range(40):
        optimizer.zero_grad()
        model(torch.ones(8, 64)).square().mean().backward()
        optimizer.step()
        if step % 4 == 3:
            torch.save({"step": step}, out / "last.pt.part")
            os.replace(out / "last.pt.part", out / "last.pt")
            time.sleep(0.1)
        if step % 4 == 2:
            print("WRITERS", *(child.pid for child in psutil.Process().children()), flush=True)
    print("READ", torch.load(out / "last.pt")["step"], sorted(os.listdir(out)), flush=True)
