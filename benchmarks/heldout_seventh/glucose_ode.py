"""A neural differential equation for blood glucose after meals, unrolled with Runge-Kutta through time.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Plan:
    points: int = 13
    hours: float = 3.0
    batch: int = 2048
    width: int = 96
    hidden: int = 6
    rate: float = 2e-3


def make_patients(n, plan, seed):
    """A minimal model of insulin and glucose with a meal at the start, and noise on what is measured."""
    rng = np.random.default_rng(seed)
    meal, sense = rng.gamma(4.0, 15.0, n), rng.uniform(0.5, 1.5, n)
    glucose, insulin, gut = rng.normal(90, 8, n), rng.normal(8, 2, n), meal.copy()
    about = np.stack([glucose / 100, insulin / 10, meal / 60, sense], 1)
    inner = 12
    dt = plan.hours / (plan.points - 1) / inner
    seen = [glucose.copy()]
    for _ in range(plan.points - 1):
        for _ in range(inner):
            flow = 1.5 * gut
            gut = gut - dt * flow
            glucose = glucose + dt * (1.2 * flow - 0.08 * sense * insulin * (glucose - 70) / 10)
            insulin = insulin + dt * (0.5 * np.maximum(glucose - 90, 0) - 1.2 * (insulin - 8))
        seen.append(glucose.copy())
    curve = np.stack(seen, 1) / 100 + 0.02 * rng.normal(size=(n, plan.points))
    return torch.tensor(about, dtype=torch.float32), torch.tensor(curve, dtype=torch.float32)


class Rates(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.first = nn.Linear(plan.hidden + 1, plan.width)
        self.second = nn.Linear(plan.width, plan.width)
        self.last = nn.Linear(plan.width, plan.hidden)
        nn.init.zeros_(self.last.weight)

    def forward(self, t, z):
        x = F.silu(self.first(torch.cat([z, t.expand(len(z), 1)], 1)))
        return self.last(F.silu(self.second(x)))


class Patient(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.enter = nn.Sequential(nn.Linear(4, plan.width), nn.SiLU(), nn.Linear(plan.width, plan.hidden))
        self.rates, self.read = Rates(plan), nn.Linear(plan.hidden, 1)
        self.register_buffer("times", torch.linspace(0, plan.hours, plan.points))

    def advance(self, z, t, dt):
        k1 = self.rates(t, z)
        k2 = self.rates(t + dt / 2, z + dt / 2 * k1)
        k3 = self.rates(t + dt / 2, z + dt / 2 * k2)
        k4 = self.rates(t + dt, z + dt * k3)
        return z + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def forward(self, about):
        z = self.enter(about)
        states = [z]
        for t, after in zip(self.times[:-1], self.times[1:], strict=True):
            z = self.advance(z, t, after - t)
            states.append(z)
        return self.read(torch.stack(states, 1)).squeeze(-1)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=100)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(19)
    plan = Plan()
    about, curve = make_patients(16_384, plan, 7)
    model = Patient(plan)
    optimizer = torch.optim.Adam(model.parameters(), plan.rate)
    step = 0
    while step < args.steps:
        for rows in torch.randperm(len(about)).split(plan.batch):
            loss = F.mse_loss(model(about[rows]), curve[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.5f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
