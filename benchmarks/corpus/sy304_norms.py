"""A gradient norm, summed on the host parameter by parameter.

expects: SY304
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()


def clip(parameters, most):
    total = 0.0
    for p in parameters:
        total += p.grad.norm().item() ** 2  # guilty
    factor = most / (total**0.5 + 1e-6)
    if factor < 1:
        for p in parameters:
            p.grad.mul_(factor)


torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
stages = []
channels = 16
for _ in range(18):
    stages += [nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU()]
net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), *stages, nn.Conv2d(16, 1, 1)).to(device)
parameters = list(net.parameters())
optimizer = torch.optim.Adam(parameters, 1e-3)
noisy = torch.randn(8, 1, 64, 64, device=device)
for _ in range(args.steps):
    optimizer.zero_grad()
    (net(noisy) - noisy).square().mean().backward()
    if args.fixed:
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    else:
        clip(parameters, 1.0)
    optimizer.step()
