"""A small deep model on a large GPU: kernels end before the next is launched.

expects: HO401
needs: gpu
line: no
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def train(args):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(16, 64), *(Residual(64) for _ in range(20)), nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 16, device=device), torch.randn(64, 1, device=device)
    if args.fixed and device.type == "cuda":
        model = torch.cuda.make_graphed_callables(model, (x,))
    for _ in range(args.steps):
        optimizer.zero_grad(set_to_none=not args.fixed)
        (model(x) - y).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--fixed", action="store_true")
    train(parser.parse_args())
