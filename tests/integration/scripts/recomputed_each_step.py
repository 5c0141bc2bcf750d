"""Trains with activation checkpointing, in four blocks, and tells of each step how many blocks ran."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

runs = 0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x):
        global runs
        runs += 1
        return x + torch.relu(self.inner(x))


torch.manual_seed(0)
blocks, head = nn.ModuleList(Block() for _ in range(4)), nn.Linear(16, 1)
optimizer = torch.optim.SGD([*blocks.parameters(), *head.parameters()], lr=0.01)
while True:
    x = torch.randn(8, 16)
    runs = 0
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    head(x).square().mean().backward()
    print(runs, flush=True)
    optimizer.step()
    optimizer.zero_grad()
