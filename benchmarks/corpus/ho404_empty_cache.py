"""`torch.cuda.empty_cache()` in every step.

expects: HO404
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn


def train_step(net, optimizer, x):
    optimizer.zero_grad(set_to_none=True)
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()


def cleanup():
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # guilty


def main(args):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = nn.Sequential(
        nn.Conv2d(8, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 8, 1)
    ).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    generator = torch.Generator(device=device).manual_seed(0)
    for _ in range(args.steps):
        x = torch.randn(16, 8, 128, 128, device=device, generator=generator)
        train_step(net, optimizer, x)
        if not args.fixed:
            cleanup()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fixed", action="store_true")
    main(parser.parse_args())
