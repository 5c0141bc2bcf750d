"""cuDNN held to deterministic algorithms, with no search for better ones.

expects: CO503
needs: gpu
"""
# mypy: ignore-errors

import argparse
import random

import numpy as np
import torch
from torch import nn


def seed_everything(seed, fixed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = not fixed  # guilty
    torch.backends.cudnn.benchmark = fixed  # guilty


class UpNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 64, 5, 2, 2), nn.ReLU(), nn.Conv2d(64, 128, 5, 2, 2), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(128, 128, 3, padding=2, dilation=2), nn.ReLU())
        self.up = nn.Sequential(nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, 2, 1))

    def forward(self, x):
        return self.up(self.middle(self.down(x)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    seed_everything(0, args.fixed)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = UpNet().to(device)
    optimizer = torch.optim.Adam(net.parameters(), 1e-4)
    x = torch.rand(32, 3, 192, 192, device=device)
    for _ in range(args.steps):
        optimizer.zero_grad()
        (net(x) - x).abs().mean().backward()
        optimizer.step()
