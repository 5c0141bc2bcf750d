"""Forecasts the prices of power for a day: an attentive decoder that is fed its own draws, with growing probability.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn

PAST, AHEAD, ZONES = 96, 24, 8


def prices(hours):
    """Daily and weekly waves, wind that wanders, and spikes when there is little of it."""
    time = torch.arange(hours)[:, None] / 24 * 6.2832
    phase = 6.2832 * torch.rand(ZONES)
    wind = torch.randn(hours, ZONES)
    for hour in range(1, hours):
        wind[hour] = 0.97 * wind[hour - 1] + 0.25 * wind[hour]
    load = torch.sin(time + phase) + 0.4 * torch.sin(time / 7 + 2 * phase)
    return (load - 0.8 * wind + F.relu(load - wind - 1.5) ** 2 + 0.1 * torch.randn(hours, ZONES)) / 2


class Days(torch.utils.data.Dataset):
    def __init__(self, series):
        self.windows = series.unfold(0, PAST + AHEAD, 3).permute(0, 2, 1).contiguous()

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, index):
        return self.windows[index].split([PAST, AHEAD])


class Forecaster(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.encoder = nn.GRU(ZONES, width, batch_first=True)
        self.cell = nn.GRUCell(ZONES + width, width)
        self.ask, self.out = nn.Linear(width, width), nn.Linear(2 * width, 2 * ZONES)

    def forward(self, past, ahead, own):
        """Mean and log-deviation of every hour ahead; an hour's input is the truth, or what was drawn before."""
        remembered, hidden = self.encoder(past)
        hidden, last, made = hidden[0], past[:, -1], []
        seen = torch.zeros_like(hidden)
        for hour in range(AHEAD):
            hidden = self.cell(torch.cat([last, seen], 1), hidden)
            look = (remembered @ self.ask(hidden)[..., None]).softmax(1)
            seen = (look * remembered).sum(1)
            mean, spread = self.out(torch.cat([hidden, seen], 1)).chunk(2, 1)
            made.append((mean, spread))
            drawn = mean + spread.exp() * torch.randn_like(mean)
            last = torch.where(torch.rand(len(past), 1) < own, drawn, ahead[:, hour])
        return [torch.stack(part, 1) for part in zip(*made)]


def likelihood(mean, spread, ahead):
    return (spread + 0.5 * ((ahead - mean) * (-spread).exp()) ** 2).mean()


def endless(loader):
    while True:
        yield from loader


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=70)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=48)
    args = cli.parse_args()
    torch.manual_seed(59)
    series = prices(6000)
    loader = torch.utils.data.DataLoader(Days(series[:5400]), args.batch, shuffle=True, drop_last=True)
    checks = next(iter(torch.utils.data.DataLoader(Days(series[5400:]), 128)))
    net = Forecaster()
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    for step, (past, ahead) in zip(range(1, args.steps + 1), endless(loader)):
        mean, spread = net(past, ahead, own=min(0.5, step / args.steps))
        loss = likelihood(mean, spread, ahead)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        if step % 35 == 0:
            with torch.no_grad():
                held_out = likelihood(*net(*checks, own=1.0), checks[1])
            print(f"step {step} nll {loss.item():.4f} held out {held_out.item():.4f}")


if __name__ == "__main__":
    main()
