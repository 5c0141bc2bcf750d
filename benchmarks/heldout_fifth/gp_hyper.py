"""Deep kernel learning: a Gaussian process on the features of a network, for sensor drift over time.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn as nn


def sensor_log(n, gen):
    """Readings of a drifting sensor: time, temperature, load and humidity, and what was measured."""
    x = torch.rand(n, 4, generator=gen) * 2 - 1
    drift = torch.sin(4 * x[:, 0]) * (1 + 0.5 * x[:, 1]) + 0.3 * x[:, 2] * x[:, 3] + 0.2 * x[:, 1] ** 2
    return x, drift + 0.1 * torch.randn(n, generator=gen)


class Features(nn.Module):
    def __init__(self, size_in, width, size_out):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(size_in, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, size_out),
        )

    def forward(self, x):
        return torch.cat([x, self.net(x)], -1)


class DeepKernel(nn.Module):
    def __init__(self, size_in=4, size_out=6):
        super().__init__()
        self.features = Features(size_in, 192, size_out)
        self.log_scale = nn.Parameter(torch.zeros(size_in + size_out))
        self.log_noise = nn.Parameter(torch.tensor(-1.5))
        self.log_amp = nn.Parameter(torch.tensor(0.0))

    def cov(self, a, b):
        a, b = (self.features(t) / self.log_scale.exp() for t in (a, b))
        dist = a.pow(2).sum(-1)[:, None] + b.pow(2).sum(-1) - 2 * a @ b.T
        return (2 * self.log_amp).exp() * torch.exp(-0.5 * dist.clamp_min(0))

    def noisy(self, x):
        return self.cov(x, x) + ((2 * self.log_noise).exp() + 1e-3) * torch.eye(len(x))


class MarginalLikelihood:
    def __init__(self, kernel):
        self.kernel = kernel

    def fit_terms(self, k, y):
        quad = y @ torch.linalg.inv(k) @ y  # guilty
        return quad, torch.logdet(k)  # guilty

    def __call__(self, x, y):
        quad, logdet = self.fit_terms(self.kernel.noisy(x), y)  # guilty
        return 0.5 * (quad + logdet + len(x) * math.log(2 * math.pi)) / len(x)


class CholeskyLikelihood(MarginalLikelihood):
    def fit_terms(self, k, y):
        low = torch.linalg.cholesky(k)
        white = torch.linalg.solve_triangular(low, y[:, None], upper=False)
        return white.pow(2).sum(), 2 * low.diagonal().log().sum()


@torch.no_grad()
def predict(kernel, x, y, grid):
    weights = torch.linalg.solve(kernel.noisy(x), y)
    return kernel.cov(grid, x) @ weights


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=620)
    cli.add_argument("--subset", type=int, default=512)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(7)
    gen = torch.Generator().manual_seed(8)
    x, y = sensor_log(8000, gen)
    held_x, held_y = sensor_log(500, gen)
    kernel = DeepKernel()
    objective = (CholeskyLikelihood if args.fixed else MarginalLikelihood)(kernel)
    hyper = [kernel.log_scale, kernel.log_noise, kernel.log_amp]
    groups = [{"params": hyper, "lr": 1e-2}, {"params": kernel.features.parameters(), "lr": 1e-3}]
    optimizer = torch.optim.Adam(groups)

    for step in range(args.steps):
        rows = torch.randperm(len(x), generator=gen)[: args.subset]

        def closure(rows=rows):
            optimizer.zero_grad()
            nll = objective(x[rows], y[rows])
            nll.backward()  # guilty
            return nll

        nll = optimizer.step(closure)
        if step % 100 == 0:
            rmse = (predict(kernel, x[rows], y[rows], held_x) - held_y).pow(2).mean().sqrt()
            print(f"step {step} nll {nll.item():.4f} rmse {rmse:.4f} noise {kernel.log_noise.exp().item():.3f}")


if __name__ == "__main__":
    main()
