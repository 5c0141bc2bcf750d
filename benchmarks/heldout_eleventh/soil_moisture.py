"""Maps soil moisture between probes: a Gaussian process with learned scales, watched on fields it has not seen.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Probes:
    places: torch.Tensor
    moisture: torch.Tensor


def dig(count, seed, features=5):
    """Probes at random places; moisture varies with height, slope, shade and two soil readings."""
    law, draw = torch.Generator().manual_seed(7), torch.Generator().manual_seed(seed)
    waves = torch.randn(features, 24, generator=law) * torch.tensor([1.6, 1.2, 0.8, 0.4, 0.1])[:, None]
    shift, strength = 6 * torch.rand(24, generator=law), torch.randn(24, generator=law) / 5
    places = torch.rand(count, features, generator=draw) * 2 - 1
    moisture = (places @ waves + shift).cos() @ strength + 0.1 * torch.randn(count, generator=draw)
    return Probes(places.double(), moisture.double())


class MoistureProcess(nn.Module):
    def __init__(self, features, lean):
        super().__init__()
        self.lean = lean
        self.log_scale = nn.Parameter(torch.zeros(features, dtype=torch.float64))
        self.log_height = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.log_noise = nn.Parameter(torch.tensor(-1.0, dtype=torch.float64))

    def covariance(self, one, two):
        one, two = one / self.log_scale.exp(), two / self.log_scale.exp()
        apart = one.square().sum(1)[:, None] + two.square().sum(1) - 2 * one @ two.T
        return (self.log_height - 0.5 * apart.clamp(min=0)).exp()

    def factor(self, probes):
        noise = (2 * self.log_noise).exp() + 1e-6
        eye = torch.eye(len(probes.places), dtype=torch.float64)
        return torch.linalg.cholesky(self.covariance(probes.places, probes.places) + noise * eye)

    def loss(self, probes):
        """Negative log marginal likelihood per probe."""
        factor = self.factor(probes)
        white = torch.linalg.solve_triangular(factor, probes.moisture[:, None], upper=False).squeeze(1)
        whole = 0.5 * white.square().sum() + factor.diagonal().log().sum()
        return whole / len(white) + 0.5 * math.log(2 * math.pi)

    @torch.no_grad()
    def foretell(self, probes, places):
        """Mean and variance of the moisture at other places."""
        factor = self.factor(probes)
        reach = torch.linalg.solve_triangular(factor, self.covariance(probes.places, places), upper=False)
        white = torch.linalg.solve_triangular(factor, probes.moisture[:, None], upper=False)
        mean = (reach.T @ white).squeeze(1)
        if self.lean:
            spread = self.log_height.exp() - reach.square().sum(0)
        else:
            spread = (self.covariance(places, places) - reach.T @ reach).diagonal()  # guilty
        return mean, spread.clamp(min=0) + (2 * self.log_noise).exp()


class Watch:
    """Keeps the scales that foretell the held-out fields best."""

    def __init__(self, model, probes, held, every):
        self.model, self.probes, self.held, self.every = model, probes, held, every
        self.best, self.kept = math.inf, None

    def after(self, step):
        if step % self.every:
            return
        mean, spread = self.model.foretell(self.probes, self.held.places)  # guilty
        surprise = F.gaussian_nll_loss(mean, self.held.moisture, spread).item()
        if surprise < self.best:
            self.best = surprise
            self.kept = {name: value.clone() for name, value in self.model.state_dict().items()}
        if step % (10 * self.every) == 0:
            error = F.mse_loss(mean, self.held.moisture).sqrt().item()
            print(f"step {step} surprise {surprise:.4f} best {self.best:.4f} error {error:.4f}")


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=400)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--probes", type=int, default=400)
    cli.add_argument("--held", type=int, default=1400)
    args = cli.parse_args()
    torch.manual_seed(60)

    probes, held = dig(args.probes, seed=1), dig(args.held, seed=2)
    model = MoistureProcess(probes.places.shape[1], lean=args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    watch = Watch(model, probes, held, every=4)
    for step in range(1, args.steps + 1):
        loss = model.loss(probes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.after(step)
    model.load_state_dict(watch.kept or model.state_dict())
    print("scales", " ".join(f"{scale:.2f}" for scale in model.log_scale.exp().tolist()))


if __name__ == "__main__":
    main()
