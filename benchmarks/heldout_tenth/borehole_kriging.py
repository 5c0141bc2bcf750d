"""Maps ore grade between boreholes: Gaussian process on features of a small network, likelihood fitted with LBFGS.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def drill(count, seed):
    """Assays of ore grade at random places of a folded, faulted seam."""
    rng = np.random.default_rng(seed)
    place = rng.uniform(-1, 1, (count, 3))
    fold = place[:, 2] + 0.4 * np.sin(3 * place[:, 0]) + 0.3 * (place[:, 1] > 0.2)
    grade = 1.5 * np.exp(-((fold / 0.35) ** 2)) + 0.3 * np.cos(4 * place[:, 1]) + rng.normal(0, 0.15, count)
    return torch.from_numpy(place.astype(np.float32)), torch.from_numpy(grade.astype(np.float32))


class Warp(nn.Module):
    """Bends the coordinates so that the field becomes stationary."""

    def __init__(self, width=32, features=4):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, features)
        )
        self.straight = nn.Linear(3, features, bias=False)

    def forward(self, place):
        return self.straight(place) + self.layers(place)


class Kriging(nn.Module):
    def __init__(self, factored=False, features=4):
        super().__init__()
        self.factored = factored
        self.warp = Warp(features=features)
        self.log_scale = nn.Parameter(torch.zeros(features))
        self.log_power = nn.Parameter(torch.zeros(()))
        self.log_nugget = nn.Parameter(torch.tensor(-1.5))
        self.mean = nn.Parameter(torch.zeros(()))

    def covariance(self, left, right):
        left, right = left * self.log_scale.exp(), right * self.log_scale.exp()
        square = (left**2).sum(1)[:, None] + (right**2).sum(1) - 2 * left @ right.T
        return self.log_power.exp() * torch.exp(-0.5 * square.clamp(min=0))

    def nugget(self, count):
        return (self.log_nugget.exp() + 5e-3) * torch.eye(count)

    def negative_log_likelihood(self, place, grade):
        warped = self.warp(place)
        full = self.covariance(warped, warped) + self.nugget(len(place))
        rest = grade - self.mean
        if self.factored:
            factor = torch.linalg.cholesky(full)
            white = torch.linalg.solve_triangular(factor, rest[:, None], upper=False)
            fit, volume = (white**2).sum(), 2 * factor.diagonal().log().sum()
        else:
            fit = rest @ torch.inverse(full) @ rest  # guilty
            volume = torch.logdet(full)  # guilty
        return 0.5 * (fit + volume + len(place) * math.log(2 * math.pi)) / len(place)

    @torch.no_grad()
    def predict(self, place, grade, wanted):
        warped, target = self.warp(place), self.warp(wanted)
        full = self.covariance(warped, warped) + self.nugget(len(place))
        weights = torch.linalg.solve(full, grade - self.mean)
        return self.mean + self.covariance(target, warped) @ weights


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=360)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--holes", type=int, default=640)
    args = cli.parse_args()
    torch.manual_seed(31)

    place, grade = drill(args.holes, seed=9)
    elsewhere, truth = drill(200, seed=10)
    model = Kriging(factored=args.fixed)
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=0.1, max_iter=2, history_size=12, tolerance_grad=0, tolerance_change=0
    )

    def closure():
        optimizer.zero_grad()
        loss = model.negative_log_likelihood(place, grade)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        return loss

    for step in range(1, args.steps + 1):
        loss = optimizer.step(closure)
        if step % 25 == 0 or step == args.steps:
            error = F.mse_loss(model.predict(place, grade, elsewhere), truth).sqrt().item()
            nugget = model.log_nugget.exp().item()
            print(f"step {step} likelihood {-loss.item():.4f} nugget {nugget:.4f} error elsewhere {error:.4f}")


if __name__ == "__main__":
    main()
