"""A neural ODE fitted to noisy spirals with a fixed-step Runge-Kutta solver and a penalty on its speed.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import itertools

import torch
from torch import nn


class Field(nn.Module):
    def __init__(self, dim=2, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim + 1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, dim)
        )
        self.calls = 0

    def forward(self, t, y):
        self.calls += 1
        return self.net(torch.cat([y, t.expand(len(y), 1)], 1))


def rk4(field, t, dt, y):
    k1 = field(t, y)
    k2 = field(t + dt / 2, y + dt / 2 * k1)
    k3 = field(t + dt / 2, y + dt / 2 * k2)
    k4 = field(t + dt, y + dt * k3)
    return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), k1.pow(2).mean()


def odeint(field, y0, times):
    """The solution at all times, and the mean energy of the field along it."""
    path, energy = [y0], 0.0
    for t0, t1 in itertools.pairwise(times):
        y, e = rk4(field, t0, t1 - t0, path[-1])
        path.append(y)
        energy = energy + e
    return torch.stack(path), energy / (len(times) - 1)


def spirals(n, times, generator):
    angle = torch.rand(n, 1, generator=generator) * 6.28
    radius = 0.5 + torch.rand(n, 1, generator=generator)
    t = times.view(1, -1)
    r = radius * torch.exp(-0.3 * t)
    xy = torch.stack([r * torch.cos(angle + 2 * t), r * torch.sin(angle + 2 * t)], -1)
    return xy.transpose(0, 1) + 0.02 * torch.randn(len(times), n, 2, generator=generator)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--fixed", action="store_true", help="changes nothing")
    p.add_argument("--intervals", type=int, default=30)
    p.add_argument("--batch", type=int, default=96)
    args = p.parse_args()
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    times = torch.linspace(0, 3, args.intervals + 1)
    field = Field()
    optimizer = torch.optim.Adam(field.parameters(), 5e-3)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995)
    average = None
    for step in range(1, args.steps + 1):
        target = spirals(args.batch, times, g)
        path, energy = odeint(field, target[0], times)
        loss = nn.functional.mse_loss(path, target) + 1e-3 * energy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
        value = loss.item()
        average = value if average is None else 0.95 * average + 0.05 * value
        if step % 30 == 0:
            print(f"step {step} loss {average:.5f} field calls {field.calls}")


if __name__ == "__main__":
    main()
