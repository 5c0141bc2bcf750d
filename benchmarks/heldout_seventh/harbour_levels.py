"""A recurrent encoder-decoder that forecasts the water level of harbours a day ahead.

expects: CO520
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAST, AHEAD, FEATURES = 96, 24, 4
PERIODS = (12.42, 12.0, 25.82, 23.93)


class Harbours(Dataset):
    """Hourly gauges with wind, pressure and the hour of the day; windows start anywhere."""

    def __init__(self, stations=20, hours=6000, seed=0):
        g = torch.Generator().manual_seed(seed)
        time = torch.arange(hours, dtype=torch.float32)
        amplitude = torch.rand(stations, len(PERIODS), 1, generator=g) * 2
        phase = torch.rand(stations, len(PERIODS), 1, generator=g) * 2 * math.pi
        omega = 2 * math.pi / torch.tensor(PERIODS)[None, :, None]
        tide = (amplitude * torch.sin(omega * time + phase)).sum(1)
        wind = F.avg_pool1d(torch.randn(stations, 1, hours, generator=g), 25, 1, 12).squeeze(1) * 4
        pressure = F.avg_pool1d(torch.randn(stations, 1, hours, generator=g), 49, 1, 24).squeeze(1) * 5
        level = tide + 0.4 * wind - 0.3 * pressure + 0.05 * torch.randn(stations, hours, generator=g)
        hour = torch.sin(2 * math.pi * time / 24).expand(stations, -1)
        self.series = torch.stack([level, wind, pressure, hour], dim=2)
        self.per_station = hours - PAST - AHEAD

    def __len__(self):
        return len(self.series) * self.per_station

    def __getitem__(self, index):
        station, start = divmod(index, self.per_station)
        window = self.series[station, start : start + PAST + AHEAD]
        return window[:PAST], window[PAST:, 0]


class Forecaster(nn.Module):
    def __init__(self, hidden=64, carry=False):
        super().__init__()
        self.encoder = nn.GRU(FEATURES, hidden, batch_first=True)
        self.decoder = nn.GRU(1, hidden, batch_first=True)
        self.read = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.carry = carry

    def unroll(self, level, state, steps):
        levels = level
        for _ in range(steps):
            hidden, _ = self.decoder(levels, state)  # guilty
            change = self.read(hidden[:, -1:])
            levels = torch.cat([levels, levels[:, -1:] + change], dim=1)
        return levels[:, 1:, 0]

    def unroll_with_state(self, level, state, steps):
        levels = [level]
        for _ in range(steps):
            hidden, state = self.decoder(levels[-1], state)
            levels.append(levels[-1] + self.read(hidden))
        return torch.cat(levels[1:], dim=1)[:, :, 0]

    def forward(self, past, steps):
        _, state = self.encoder(past)
        unroll = self.unroll_with_state if self.carry else self.unroll
        return unroll(past[:, -1:, :1], state, steps)  # guilty


def quantile_free_loss(predicted, target):
    weights = torch.linspace(1.0, 0.5, target.shape[1])
    return (weights * F.smooth_l1_loss(predicted, target, reduction="none")).mean()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=120)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=32)
    cli.add_argument("--lr", type=float, default=2e-3)
    args = cli.parse_args()
    torch.manual_seed(1)

    loader = DataLoader(Harbours(), args.batch_size, shuffle=True, drop_last=True)
    model = Forecaster(carry=args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr)
    step = 0
    while step < args.steps:
        for past, future in loader:
            loss = quantile_free_loss(model(past, AHEAD), future)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % 30 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
