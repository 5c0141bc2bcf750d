"""Trains with activation checkpointing, in eight blocks, on the device of the second word; "full" has little room."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from truth import Truth

KIND = sys.argv[1] if len(sys.argv) > 1 else "plain"
DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cpu"
ROWS = 32
if KIND == "full":
    # Room for the model and what it keeps now, but for little more.
    ROWS = 200_000
    torch.cuda.set_per_process_memory_fraction(1.5 * 2**30 / torch.cuda.mem_get_info()[1])


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 64)
        self.dropped = nn.Dropout(0.2)
        self.runs = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.runs += 1
        return x + self.dropped(torch.relu(self.inner(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(8))
        self.head = nn.Linear(64, 1)

    def forward(self, x: torch.Tensor) -> Any:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


torch.manual_seed(0)
model = Net().to(DEVICE)
blocks: Any = model.blocks
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses, truth = [], Truth()
for _ in range(12):
    x = torch.randn(ROWS, 64, device=DEVICE)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    truth.step(32)
model.eval()
truth.tell(
    losses=losses,
    weights=[float(one.double().sum()) for one in model.parameters()],
    buffers=[float(one.double().sum()) for one in model.buffers()],
    random=float(torch.rand(())),
    runs=sum(block.runs for block in blocks),
)
