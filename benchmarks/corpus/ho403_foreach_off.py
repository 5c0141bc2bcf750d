"""Adam with `foreach=False` over hundreds of small parameters.

expects: HO403
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn

cli = argparse.ArgumentParser()
cli.add_argument("--steps", type=int, default=200)
cli.add_argument("--fixed", action="store_true")
args = cli.parse_args()

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
experts = nn.ModuleList(
    nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128), nn.LayerNorm(128)) for _ in range(60)
).to(device)
optimizer = torch.optim.Adam(experts.parameters(), 1e-4, foreach=args.fixed)  # guilty
x = torch.randn(2048, 128, device=device)
for _ in range(args.steps):
    out = x
    for expert in experts:
        out = out + expert(out)
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # guilty
