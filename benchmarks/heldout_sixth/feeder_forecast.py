"""Probabilistic forecasts of correlated power feeders: a GRU emits a Gaussian with factors and own noise.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import LowRankMultivariateNormal, MultivariateNormal

FEEDERS, RANK, PAST, AHEAD = 72, 4, 24, 6


def make_load(hours, seed):
    rng = np.random.default_rng(seed)
    clock = np.arange(hours)
    daily = np.sin(2 * np.pi * clock[:, None] / 24 + rng.uniform(0, 6, FEEDERS))
    weather = np.zeros((hours, 3))
    for t in range(1, hours):
        weather[t] = 0.95 * weather[t - 1] + 0.3 * rng.normal(size=3)
    load = daily + weather @ rng.normal(size=(3, FEEDERS)) * 0.5
    load += 0.2 * rng.normal(size=load.shape)
    return torch.tensor((load - load.mean(0)) / load.std(0), dtype=torch.float32)


class Windows:
    """Draws batches of windows from the history."""

    def __init__(self, load, batch_size, seed):
        self.load, self.batch_size = load, batch_size
        self.random = torch.Generator().manual_seed(seed)
        self.offsets = torch.arange(PAST + AHEAD)

    def draw(self):
        last = len(self.load) - PAST - AHEAD
        start = torch.randint(last, (self.batch_size, 1), generator=self.random)
        return self.load[start + self.offsets]


class Forecaster(nn.Module):
    def __init__(self, width=96, fixed=False):
        super().__init__()
        self.fixed = fixed
        self.rnn = nn.GRU(FEEDERS, width, batch_first=True)
        self.mean = nn.Linear(width, FEEDERS)
        self.factor = nn.Linear(width, FEEDERS * RANK)
        self.noise = nn.Linear(width, FEEDERS)

    def distribution(self, state):
        mean = self.mean(state)
        factor = 0.3 * self.factor(state).unflatten(-1, (FEEDERS, RANK))
        noise = F.softplus(self.noise(state)) + 1e-2
        if self.fixed:
            return LowRankMultivariateNormal(mean, factor, noise, validate_args=False)
        covariance = factor @ factor.mT + torch.diag_embed(noise)  # guilty
        return MultivariateNormal(mean, covariance, validate_args=False)  # guilty

    def loss(self, window):
        states, _ = self.rnn(window[:, :-1])
        ahead = self.distribution(states[:, -AHEAD:])
        return -ahead.log_prob(window[:, -AHEAD:]).mean() / FEEDERS  # guilty


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(9)
    windows = Windows(make_load(4000, 3), 24, 1)
    model = Forecaster(fixed=args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    smooth = None
    for step in range(1, args.steps + 1):
        loss = model.loss(windows.draw())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        value = loss.item()
        smooth = value if smooth is None else 0.95 * smooth + 0.05 * value
        if step % 30 == 0:
            print(f"step {step} nll {value:.4f} smooth {smooth:.4f}")


if __name__ == "__main__":
    main()
