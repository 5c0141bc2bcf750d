"""RealNVP on two-dimensional toys, with a switch for debugging at the top of the file.

expects: HO405
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
from torch import nn

DEBUG_NAN = True


def two_spirals(n, generator):
    t = torch.rand(n, generator=generator).sqrt() * 3 * math.pi
    sign = torch.randint(0, 2, (n,), generator=generator) * 2 - 1
    xy = torch.stack([t.cos() * t, t.sin() * t], 1) * sign.view(-1, 1) / 6
    return xy + 0.05 * torch.randn(n, 2, generator=generator)


class Coupling(nn.Module):
    def __init__(self, hidden, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(
            nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2)
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, z):
        a, b = (z[:, 1:], z[:, :1]) if self.flip else (z[:, :1], z[:, 1:])
        s, t = self.net(a).chunk(2, 1)
        s = 2 * torch.tanh(s)
        b = b * s.exp() + t
        return torch.cat([b, a] if self.flip else [a, b], 1), s.sum(1)


class ActNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale, self.shift = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))

    def forward(self, z):
        return z * self.log_scale.exp() + self.shift, self.log_scale.sum().expand(len(z))


class Flow(nn.Module):
    def __init__(self, layers, hidden):
        super().__init__()
        self.steps = nn.ModuleList()
        for k in range(layers):
            self.steps.extend([ActNorm(), Coupling(hidden, k % 2 == 1)])

    def log_prob(self, x):
        total = torch.zeros(len(x))
        for step in self.steps:
            x, logdet = step(x)
            total = total + logdet
        return total - 0.5 * x.pow(2).sum(1) - math.log(2 * math.pi)


class CosineWarmup:
    def __init__(self, optimizer, warmup, total):
        self.optimizer, self.warmup, self.total, self.n = optimizer, warmup, total, 0
        self.base = [g["lr"] for g in optimizer.param_groups]

    def step(self):
        self.n += 1
        if self.n < self.warmup:
            f = self.n / self.warmup
        else:
            f = 0.5 * (1 + math.cos(math.pi * (self.n - self.warmup) / max(1, self.total - self.warmup)))
        for g, lr in zip(self.optimizer.param_groups, self.base, strict=True):
            g["lr"] = lr * f


def train(steps, batch):
    g = torch.Generator().manual_seed(0)
    flow = Flow(layers=16, hidden=48)
    optimizer = torch.optim.Adam(flow.parameters(), lr=2e-3)
    schedule = CosineWarmup(optimizer, 20, steps)
    best = float("inf")
    for step in range(1, steps + 1):
        loss = -flow.log_prob(two_spirals(batch, g)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            best = min(best, loss.item())
            print(f"{step:5d} nll {loss.item():.4f} best {best:.4f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--batch", type=int, default=256)
    opts = ap.parse_args()
    torch.manual_seed(0)
    torch.autograd.set_detect_anomaly(DEBUG_NAN and not opts.fixed)  # guilty
    train(opts.steps, opts.batch)
