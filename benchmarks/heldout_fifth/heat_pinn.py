"""Physics-informed network for a reaction-diffusion equation in two dimensions, with an unknown diffusivity.

expects: CO513
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn as nn


class FourierFeatures(nn.Module):
    def __init__(self, dims, count, scale):
        super().__init__()
        self.register_buffer("freq", torch.randn(dims, count) * scale)

    def forward(self, p):
        proj = 2 * math.pi * p @ self.freq
        return torch.cat([proj.sin(), proj.cos()], -1)


class Field(nn.Module):
    """u(x, y, t), and the diffusivity that belongs to it."""

    def __init__(self, width=96, depth=4):
        super().__init__()
        self.embed = FourierFeatures(3, 24, 0.5)
        layers, size = [], 48
        for _ in range(depth):
            layers += [nn.Linear(size, width), nn.Tanh()]
            size = width
        self.body = nn.Sequential(*layers, nn.Linear(size, 1))
        self.log_nu = nn.Parameter(torch.tensor(-3.0))

    def forward(self, p):
        return self.body(self.embed(p)).squeeze(-1)


def slope(u, p):
    return torch.autograd.grad(u.sum(), p, create_graph=True)[0]


class FisherKPP:
    """u_t = nu (u_xx + u_yy) + rate u (1 - u)"""

    def __init__(self, field, rate):
        self.field, self.rate = field, rate

    def second(self, p, axis):
        first = slope(self.field(p), p)[:, axis]  # guilty
        return slope(first, p)[:, axis]

    def residual(self, p):
        u = self.field(p)
        u_t = slope(self.field(p), p)[:, 2]  # guilty
        lap = self.second(p, 0) + self.second(p, 1)  # guilty
        return u_t - self.field.log_nu.exp() * lap - self.rate * u * (1 - u)


class SharedFisherKPP(FisherKPP):
    def residual(self, p):
        u = self.field(p)
        grad = slope(u, p)
        lap = slope(grad[:, 0], p)[:, 0] + slope(grad[:, 1], p)[:, 1]
        return grad[:, 2] - self.field.log_nu.exp() * lap - self.rate * u * (1 - u)


def initial_bump(xy):
    return torch.exp(-20 * ((xy - 0.5) ** 2).sum(-1))


def sensors(n, gen):
    """Noisy readings of a front that spreads out."""
    p = torch.rand(n, 3, generator=gen)
    radius = (p[:, :2] - 0.5).norm(dim=-1)
    value = torch.sigmoid(12 * (0.15 + 0.45 * p[:, 2] - radius))
    return p, value + 0.01 * torch.randn(n, generator=gen)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=310)
    cli.add_argument("--points", type=int, default=1024)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(4)
    gen = torch.Generator().manual_seed(5)
    field = Field()
    equation = (SharedFisherKPP if args.fixed else FisherKPP)(field, rate=1.5)
    where, reading = sensors(2000, gen)
    optimizer = torch.optim.Adam(field.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    for step in range(args.steps):
        inner = torch.rand(args.points, 3, generator=gen).requires_grad_()
        res = equation.residual(inner)  # guilty
        start = torch.rand(256, 3, generator=gen)
        start[:, 2] = 0
        pick = torch.randint(len(where), (256,), generator=gen)
        loss_start = ((field(start) - initial_bump(start[:, :2])) ** 2).mean()
        loss_data = ((field(where[pick]) - reading[pick]) ** 2).mean()
        loss = res.pow(2).mean() + 10 * loss_start + 5 * loss_data
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f} nu {field.log_nu.exp().item():.4f}")


if __name__ == "__main__":
    main()
