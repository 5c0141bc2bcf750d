"""A loss over a boolean mask, whose size only the device knows.

expects: SY302
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn


def masked_loss(out, target, valid):
    return (out[valid] - target[valid]).abs().mean()  # guilty


def weighted_loss(out, target, valid):
    return ((out - target).abs() * valid).sum() / valid.sum()


class Flow(nn.Module):
    def __init__(self, width=48, depth=12):
        super().__init__()
        self.stem = nn.Conv2d(2, width, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(depth))
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        x = self.stem(x)
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = x + norm(block(x)).relu()
        return self.head(x).squeeze(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = Flow().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    criterion = weighted_loss if args.fixed else masked_loss
    frames = torch.randn(4, 2, 96, 96, device=device)
    target = torch.randn(4, 96, 96, device=device)
    valid = target > -1
    for _ in range(args.steps):
        optimizer.zero_grad()
        criterion(net(frames), target, valid).backward()
        optimizer.step()
