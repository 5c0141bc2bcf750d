"""Fits the kernel of a Gaussian process to measurements of soil moisture at scattered places, with L-BFGS.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import numpy as np
import torch
from torch import nn

FEATURES = 6


def make_field(n, seed):
    """Places with a few covariates (slope, clay, ...); moisture is a smooth function of them, with noise."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(-1, 1, (n, FEATURES))
    waves, phase = rng.normal(size=(FEATURES, 20)), rng.uniform(0, 6.28, 20)
    waves *= np.array([3.0, 2.0, 1.0, 0.5, 0.2, 0.1])[:, None]
    moisture = np.cos(places @ waves + phase).sum(1) / math.sqrt(10) + 0.2 * rng.normal(size=n)
    return torch.tensor(places, dtype=torch.float32), torch.tensor(moisture, dtype=torch.float32)


class Kriging(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.fixed = fixed
        self.log_scale = nn.Parameter(torch.zeros(FEATURES))
        self.log_amplitude = nn.Parameter(torch.zeros(()))
        self.log_noise = nn.Parameter(torch.tensor(-1.0))
        self.level = nn.Parameter(torch.zeros(()))

    def kernel(self, a, b):
        a, b = a / self.log_scale.exp(), b / self.log_scale.exp()
        square = a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T
        return (2 * self.log_amplitude).exp() * torch.exp(-0.5 * square.clamp(min=0))

    def covariance(self, places):
        noise = (2 * self.log_noise).exp() + 1e-3
        return self.kernel(places, places) + noise * torch.eye(len(places))

    def forward(self, places, moisture):
        """The negative log marginal likelihood, per place."""
        cov = self.covariance(places)
        rest = (moisture - self.level)[:, None]
        if self.fixed:
            factor = torch.linalg.cholesky(cov)
            fit = torch.linalg.solve_triangular(factor, rest, upper=False).square().sum()
            volume = 2 * factor.diagonal().log().sum()
        else:
            fit = (rest.T @ torch.linalg.inv(cov) @ rest).squeeze()  # guilty
            volume = torch.logdet(cov)  # guilty
        return 0.5 * (fit + volume + len(places) * math.log(2 * math.pi)) / len(places)


@torch.no_grad()
def held_out_error(model, places, moisture, new, wanted):
    weight = torch.linalg.solve(model.covariance(places), moisture - model.level)
    guess = model.level + model.kernel(new, places) @ weight
    return (guess - wanted).square().mean().sqrt().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--places", type=int, default=600)
    args = cli.parse_args()
    torch.manual_seed(0)
    places, moisture = make_field(8 * args.places, 13)
    model = Kriging(args.fixed)
    new, wanted = places[-400:], moisture[-400:]
    step = 0
    while step < args.steps:
        # every 15 steps another subset of the places; the curvature that was collected starts anew
        rows = torch.randperm(len(places) - 400)[: args.places]
        here, level = places[rows], moisture[rows]
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.2, max_iter=2, history_size=8)

        def closure(optimizer=optimizer, here=here, level=level):
            optimizer.zero_grad()
            loss = model(here, level)  # guilty
            loss.backward()  # guilty
            return loss

        for _ in range(min(15, args.steps - step)):
            loss = optimizer.step(closure)
            step += 1
        error = held_out_error(model, here, level, new, wanted)
        print(f"step {step} loss {loss.item():.4f} error {error:.4f}")


if __name__ == "__main__":
    main()
