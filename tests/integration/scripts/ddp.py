"""Data-parallel training over gloo under torchrun or accelerate.

`--kill`, `--late` and `--memory` plant trouble on the last rank; `--epochs=40` is 40 epochs instead of 2.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from truth import Truth

torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
last = rank == world - 1
dataset = TensorDataset(torch.randn(480, 8))
loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset))
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if "--late" in sys.argv and last:
    time.sleep(1.5)
truth = Truth()
epochs = next((int(word.removeprefix("--epochs=")) for word in sys.argv if word.startswith("--epochs=")), 2)
for _epoch in range(epochs):
    for (x,) in loader:
        if "--kill" in sys.argv and last and len(truth.ends_ns) == 50:
            os.kill(os.getpid(), signal.SIGKILL)
        if "--memory" in sys.argv and last and len(truth.ends_ns) == 5:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        truth.step(len(x))
        time.sleep(0.005)
sequence = dist.group.WORLD._get_sequence_number_for_group()  # type: ignore[union-attr]
truth.tell(rank=rank, sequence=sequence, loss=f"{loss.detach():.9f}")
dist.destroy_process_group()
