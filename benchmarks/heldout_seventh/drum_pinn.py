"""A physics-informed network for the damped vibration of a drum's membrane: residual, rim and first shape.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
from torch import nn

SPEED, DAMPING = 1.0, 0.15


class Waves(nn.Module):
    """A network of sines (as SIREN): smooth enough for second derivatives."""

    def __init__(self, width=96, depth=4):
        super().__init__()
        self.enter = nn.Linear(3, width)
        self.hidden = nn.ModuleList([nn.Linear(width, width) for _ in range(depth - 1)])
        self.leave = nn.Linear(width, 1)
        nn.init.uniform_(self.enter.weight, -2.0, 2.0)
        for layer in self.hidden:
            bound = math.sqrt(6 / width)
            nn.init.uniform_(layer.weight, -bound, bound)

    def forward(self, x, y, t):
        z = torch.sin(self.enter(torch.cat([x, y, t], 1)))
        for layer in self.hidden:
            z = torch.sin(layer(z))
        return self.leave(z)


def slope(of, by):
    return torch.autograd.grad(of, by, torch.ones_like(of), create_graph=True)


def disc(n):
    radius, angle = torch.rand(n, 1).sqrt(), 2 * math.pi * torch.rand(n, 1)
    return radius * angle.cos(), radius * angle.sin()


class Drum:
    def __init__(self, steps, points):
        self.points = points
        self.model = Waves()
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 3e-3, max(steps, 2))

    def residual(self):
        x, y = disc(self.points)
        t = 2 * torch.rand(self.points, 1)
        x, y, t = (part.requires_grad_() for part in (x, y, t))
        u = self.model(x, y, t)
        u_x, u_y, u_t = slope(u, (x, y, t))
        (u_xx,), (u_yy,), (u_tt,) = slope(u_x, x), slope(u_y, y), slope(u_t, t)
        return (u_tt + 2 * DAMPING * u_t - SPEED**2 * (u_xx + u_yy)).square().mean()

    def rim(self):
        angle = 2 * math.pi * torch.rand(self.points // 8, 1)
        return self.model(angle.cos(), angle.sin(), 2 * torch.rand_like(angle)).square().mean()

    def start(self):
        x, y = disc(self.points // 8)
        t = torch.zeros_like(x).requires_grad_()
        u = self.model(x, y, t)
        shape = (1 - x.square() - y.square()) * (1 + 0.5 * x)
        (speed,) = slope(u, t)
        return (u - shape).square().mean() + speed.square().mean()

    def step(self):
        parts = self.residual(), self.rim(), self.start()
        loss = parts[0] + 20 * parts[1] + 20 * parts[2]
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return [part.detach() for part in parts]


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=160)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--points", type=int, default=2048)
    args = cli.parse_args()
    torch.manual_seed(14)
    drum = Drum(args.steps, args.points)
    for step in range(1, args.steps + 1):
        parts = drum.step()
        if step % 20 == 0:
            residual, rim, start = (part.item() for part in parts)
            print(f"step {step} residual {residual:.4f} rim {rim:.4f} start {start:.4f}")


if __name__ == "__main__":
    main()
