"""A physics-informed network that solves the viscous Burgers equation for several viscosities at once.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
from torch import nn


class Field(nn.Module):
    """u(x, t, log viscosity), with random Fourier features in front."""

    def __init__(self, width=112, depth=4, features=40):
        super().__init__()
        self.register_buffer("waves", torch.randn(3, features))
        layers, narrow = [], 2 * features
        for _ in range(depth):
            layers += [nn.Linear(narrow, width), nn.Tanh()]
            narrow = width
        self.net = nn.Sequential(*layers, nn.Linear(narrow, 1))

    def forward(self, points):
        angle = points @ self.waves
        return self.net(torch.cat([angle.sin(), angle.cos()], 1)).squeeze(1)


class Collocation:
    def __init__(self, inside, edge, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.inside, self.edge = inside, edge

    def uniform(self, count, low, high):
        return low + (high - low) * torch.rand(count, 1, generator=self.g)

    def interior(self):
        n = self.inside
        return torch.cat([self.uniform(n, -1, 1), self.uniform(n, 0, 1), self.uniform(n, -5, -3)], 1)

    def border(self):
        """Points at t = 0 with the initial wave, and points at both walls with zero."""
        n = self.edge
        start = torch.cat([self.uniform(n, -1, 1), torch.zeros(n, 1), self.uniform(n, -5, -3)], 1)
        wall = torch.randint(2, (n, 1), generator=self.g) * 2.0 - 1
        sides = torch.cat([wall, self.uniform(n, 0, 1), self.uniform(n, -5, -3)], 1)
        value = torch.cat([-torch.sin(math.pi * start[:, 0]), torch.zeros(n)])
        return torch.cat([start, sides]), value


def residual(field, points):
    points = points.requires_grad_()
    u = field(points)
    (slopes,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    u_x, u_t = slopes[:, 0], slopes[:, 1]
    (bends,) = torch.autograd.grad(u_x.sum(), points, create_graph=True)
    return u_t + u * u_x - points[:, 2].detach().exp() * bends[:, 0]


class Balance:
    """Weights the two terms by a running ratio of their sizes."""

    def __init__(self, momentum=0.95):
        self.momentum, self.ratio = momentum, 1.0

    def __call__(self, physics, border):
        now = (physics.detach() / (border.detach() + 1e-8)).clamp(0.1, 100.0)
        self.ratio = self.momentum * self.ratio + (1 - self.momentum) * now
        return physics + self.ratio * border


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=160)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--inside", type=int, default=2400)
    cli.add_argument("--edge", type=int, default=150)
    args = cli.parse_args()
    torch.manual_seed(53)

    field, points, balance = Field(), Collocation(args.inside, args.edge, 59), Balance()
    optimizer = torch.optim.Adam(field.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9995)
    for step in range(1, args.steps + 1):
        physics = residual(field, points.interior()).pow(2).mean()
        where, value = points.border()
        border = (field(where) - value).pow(2).mean()
        loss = balance(physics, border)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 40 == 0:
            print(f"step {step} physics {physics.item():.5f} border {border.item():.5f}")


if __name__ == "__main__":
    main()
