"""A step with pinned blocking copies, a synchronize and logged device results; tells its losses, waits and events.

Words after the script's name: "writes" changes a batch on the host after its copy, "stream" enters a stream of its own,
"reads" copies to the host without blocking and reads it after a synchronize.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
model = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 8)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(120 * 512, 4096)), batch_size=512, pin_memory=True)
losses, held_s = [], 0.0
with SummaryWriter("events") as writer:
    for step, (x,) in enumerate(loader):
        begun = time.perf_counter()
        batch = x.to("cuda")
        held_s += time.perf_counter() - begun
        if "writes" in sys.argv and step > 40:
            x.zero_()
        if "stream" in sys.argv and step == 40:
            with torch.cuda.stream(torch.cuda.Stream()):
                pass
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        begun = time.perf_counter()
        torch.cuda.synchronize() if "synchronize" in sys.argv else None
        if "reads" in sys.argv and step == 40:
            read = loss.detach().to("cpu", non_blocking=True)
            torch.cuda.synchronize()
            assert read.item() == loss.item()
        writer.add_scalar("loss", loss, step)
        writer.add_scalars("both", {"a": loss.detach(), "b": float(step)}, step)
        held_s += time.perf_counter() - begun
        losses.append(loss.detach())
    print("LOSSES", json.dumps([one.item().hex() for one in losses]))
print("TRUTH", json.dumps({"held_ms_per_step": 1e3 * held_s / len(losses)}))
