"""Large matrix products in full single precision.

expects: CO501, CO502
needs: gpu
line: no
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
if args.fixed:
    torch.set_float32_matmul_precision("high")
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(4096, 4096), nn.ReLU()))).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(4096, 4096, device=device)
for _ in range(args.steps):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
