"""Anomaly detection, left on after a hunt for a NaN.

expects: HO405
needs: either
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=90)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
if not args.fixed:
    torch.autograd.set_detect_anomaly(True)  # guilty
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
cell = nn.LSTMCell(24, 24).to(device)
readout = nn.Linear(24, 24).to(device)
optimizer = torch.optim.Adam([*cell.parameters(), *readout.parameters()], 1e-3)
series = torch.randn(40, 16, 24, device=device)
for _ in range(args.steps):
    h = c = torch.zeros(16, 24, device=device)
    loss = 0.0
    for t in range(len(series) - 1):
        h, c = cell(series[t], (h, c))
        loss = loss + (readout(h) - series[t + 1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
