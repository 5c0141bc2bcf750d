"""The valid points of a cloud are picked by a boolean mask, whose size only the device knows.

expects: SY302
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn


class Points(nn.Module):
    """A frozen network of many small layers describes each point, a wide one judges it."""

    def __init__(self, width):
        super().__init__()
        layers = [layer for _ in range(28) for layer in (nn.Linear(96, 96), nn.LayerNorm(96), nn.SiLU())]
        self.describe = nn.Sequential(nn.Linear(3, 96), *layers).requires_grad_(False)
        self.judge = nn.Sequential(nn.Linear(96, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.out = nn.Linear(width, 1)

    def forward(self, points):
        return self.out(self.judge(self.describe(points))).squeeze(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    if torch.cuda.is_available():
        torch.set_default_dtype(torch.bfloat16)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with torch.device(device):
        net = Points(10240 if device.type == "cuda" else 256)
        cloud, target = torch.randn(6144, 3), torch.randn(6144)
        inside = cloud[:, 2] > -3
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 1e-3)
    for _ in range(args.steps):
        if args.fixed:
            error = (net(cloud) - target).abs() * inside
        else:
            error = (net(cloud[inside]) - target[inside]).abs()  # guilty
        optimizer.zero_grad()
        error.mean().backward()
        optimizer.step()
