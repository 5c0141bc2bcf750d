"""A closure that LBFGS calls as often as it likes.

expects: none
needs: cpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
args = parser.parse_args()
torch.manual_seed(0)
x = torch.linspace(-1, 1, 3000)[:, None]
y = (4 * x).sin() * x
net = nn.Sequential(nn.Linear(1, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=4, history_size=8)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    return loss


for _ in range(args.steps):
    optimizer.step(closure)
