"""`loss.item()` and an accuracy in every step.

expects: SY301
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
blocks = [nn.Sequential(nn.Linear(1024, 1024), nn.LayerNorm(1024), nn.GELU()) for _ in range(16)]
model = nn.Sequential(*blocks, nn.Linear(1024, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(1024, 1024, device=device)
y = torch.randint(0, 10, (1024,), device=device)
running, right = 0.0, torch.zeros((), device=device)
for _ in range(args.steps):
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    if args.fixed:
        right += (out.argmax(1) == y).sum()
    else:
        running += loss.item()  # guilty
        running += (out.argmax(1) == y).float().mean().item()  # guilty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
