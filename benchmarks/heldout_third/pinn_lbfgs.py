"""A physics-informed network for the Burgers equation, fitted by L-BFGS with a closure.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import itertools
import math

import torch
from torch import nn
from torch.autograd import grad


class PINN(nn.Module):
    def __init__(self, width=48, depth=4):
        super().__init__()
        sizes = [2] + [width] * depth
        layers = []
        for a, b in itertools.pairwise(sizes):
            layers += [nn.Linear(a, b), nn.Tanh()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, t, x):
        return self.net(torch.cat([t, x], 1))


def residual(model, t, x, nu):
    u = model(t, x)
    one = torch.ones_like(u)
    ut, ux = grad(u, (t, x), one, create_graph=True)
    (uxx,) = grad(ux, x, one, create_graph=True)
    return ut + u * ux - nu * uxx


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=140)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--points", type=int, default=500)
    args = parser.parse_args()
    torch.manual_seed(0)
    t = torch.rand(args.points, 1, requires_grad=True)
    x = (torch.rand(args.points, 1) * 2 - 1).requires_grad_()
    x0 = torch.linspace(-1, 1, 100).unsqueeze(1)
    t0, u0 = torch.zeros_like(x0), -torch.sin(math.pi * x0)
    tb = torch.rand(100, 1)
    edge = torch.ones_like(tb)
    model = PINN()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, history_size=10)
    parts = {}

    def closure():
        optimizer.zero_grad()
        inside = residual(model, t, x, 0.01 / math.pi).pow(2).mean()
        start = (model(t0, x0) - u0).pow(2).mean()
        border = model(tb, edge).pow(2).mean() + model(tb, -edge).pow(2).mean()
        loss = inside + start + border
        loss.backward()
        parts.update(inside=inside.detach(), start=start.detach(), border=border.detach())
        return loss

    for step in range(args.steps):
        loss = optimizer.step(closure)
        if step % 25 == 0:
            text = " ".join(f"{k} {v.item():.4f}" for k, v in parts.items())
            print(f"{step}: loss {loss.item():.5f} {text}")


if __name__ == "__main__":
    main()
