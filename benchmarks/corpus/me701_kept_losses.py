"""Losses kept with their graphs: memory grows with every step.

expects: ME701
needs: either
gain: no
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn


class History:
    def __init__(self):
        self.losses = []

    def add(self, loss, keep_graph):
        self.losses.append(loss if keep_graph else loss.detach())  # guilty


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=350)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
# On the host in any case: it is the host's memory that grows.
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
history = History()
for _ in range(args.steps):
    x = torch.randn(384, 256)
    loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.add((model(x) - 1).square().mean(), keep_graph=not args.fixed)  # guilty
