"""Ensemble forecasts of river levels from a generator with noise inputs, trained on the ranked probability score.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, random_split

PAST, AHEAD, GAUGES = 48, 24, 3


class River(Dataset):
    """Windows over rainfall and the levels of three gauges down the river."""

    def __init__(self, hours, seed):
        rng = np.random.default_rng(seed)
        rain = rng.gamma(0.08, 3.0, hours) * (1 + np.sin(np.arange(hours) / 300))
        levels = np.zeros((hours, GAUGES))
        for hour in range(1, hours):
            inflow = np.r_[rain[hour], 0.3 * levels[hour - 1, :-1]]
            levels[hour] = 0.93 * levels[hour - 1] + 0.4 * inflow + 0.01 * rng.normal(size=GAUGES)
        series = np.c_[rain, levels]
        series = (series - series.mean(0)) / series.std(0)
        self.series = torch.from_numpy(series.astype(np.float32))

    def __len__(self):
        return len(self.series) - PAST - AHEAD

    def __getitem__(self, index):
        past = self.series[index : index + PAST]
        return past, self.series[index + PAST : index + PAST + AHEAD, -1]


class EnsembleForecaster(nn.Module):
    def __init__(self, members, width=96, noise=8):
        super().__init__()
        self.members, self.noise = members, noise
        self.encoder = nn.Sequential(nn.Linear(PAST * (1 + GAUGES), 256), nn.SiLU(), nn.Linear(256, width))
        self.mixer = nn.Linear(noise, width, bias=False)
        self.decoder = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, AHEAD))

    def forward(self, past, generator=None):
        context = self.encoder(past.flatten(1)).unsqueeze(1)
        noise = torch.randn(len(past), self.members, self.noise, generator=generator)
        return self.decoder(context + self.mixer(noise)) + past[:, -1:, -1:]


def crps(ensemble, truth):
    """E|X - y| - E|X - X'| / 2, over the ensemble's members."""
    skill = (ensemble - truth.unsqueeze(1)).abs().mean(1)
    spread = (ensemble.unsqueeze(1) - ensemble.unsqueeze(2)).abs().mean((1, 2))  # guilty
    return (skill - 0.5 * spread).mean()


def crps_sorted(ensemble, truth):
    """The same: the mean distance of all pairs is a weighted sum of the sorted members."""
    members = ensemble.shape[1]
    skill = (ensemble - truth.unsqueeze(1)).abs().mean(1)
    ranks = torch.arange(1, members + 1, dtype=ensemble.dtype)
    weight = 2 * (2 * ranks - members - 1) / members**2
    spread = (weight.view(1, -1, 1) * ensemble.sort(1).values).sum(1)
    return (skill - 0.5 * spread).mean()


def coverage(model, loader, generator):
    """The share of truths within the middle 80% of the members."""
    model.eval()
    inside = []
    with torch.no_grad():
        for past, truth in loader:
            low, high = torch.quantile(model(past, generator), torch.tensor([0.1, 0.9]), dim=1)
            inside.append(((truth > low) & (truth < high)).float().mean())
    model.train()
    return torch.stack(inside).mean().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=360)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--members", type=int, default=64)
    args = cli.parse_args()
    torch.manual_seed(50)
    train, held = random_split(River(6000, 51), [5700, 228], torch.Generator().manual_seed(52))
    order = torch.Generator().manual_seed(53)
    loader = DataLoader(train, batch_size=16, shuffle=True, drop_last=True, generator=order)
    held_loader = DataLoader(held, batch_size=57)
    model = EnsembleForecaster(args.members)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    score = crps_sorted if args.fixed else crps
    step = 0
    while step < args.steps:
        for past, truth in loader:
            loss = score(model(past), truth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 80 == 0:
                inside = coverage(model, held_loader, torch.Generator().manual_seed(54))
                print(f"step {step} crps {loss.item():.4f} coverage {inside:.3f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
