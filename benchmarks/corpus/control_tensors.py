"""Tensors in memory and a plain loop.

expects: none
needs: cpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=150)
args = parser.parse_args()
torch.manual_seed(0)
data = TensorDataset(torch.randn(1024, 3, 32, 32), torch.randint(0, 10, (1024,)))
loader = DataLoader(data, batch_size=32, shuffle=True)
net = nn.Sequential(
    nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 14 * 14, 10)
)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
step = 0
while step < args.steps:
    for x, y in loader:
        opt.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        opt.step()
        step += 1
        if step == args.steps:
            break
