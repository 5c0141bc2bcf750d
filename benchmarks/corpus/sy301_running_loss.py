"""`loss.item()` and an accuracy after every step: a frozen encoder of small layers never gets a head start.

expects: SY301
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
if torch.cuda.is_available():
    torch.set_default_dtype(torch.bfloat16)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
width = 8192 if device.type == "cuda" else 256
with torch.device(device):
    blocks = [nn.Sequential(nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU()) for _ in range(30)]
    encoder = nn.Sequential(*blocks).requires_grad_(False)
    head = nn.Sequential(nn.Linear(128, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    classify = nn.Linear(width, 10)
    x, y = torch.randn(4096, 128), torch.randint(0, 10, (4096,))
optimizer = torch.optim.SGD([*head.parameters(), *classify.parameters()], lr=0.01)
running, right = 0.0, torch.zeros((), device=device)
for _ in range(args.steps):
    out = classify(head(encoder(x)).relu())
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hits = (out.argmax(1) == y).sum()
    if args.fixed:
        right += hits
    else:
        running += loss.item()  # guilty
        running += hits.item() / len(y)  # guilty
