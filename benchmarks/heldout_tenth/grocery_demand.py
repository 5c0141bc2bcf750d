"""Forecasts a week of grocery sales for a chain of stores: shared dilated convolutions over days, a head per store.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import numpy as np
import torch
from torch import nn

STORES, DAYS, PAST, AHEAD = 48, 900, 56, 7
QUANTILES = torch.tensor([0.1, 0.5, 0.9])


def sales(seed):
    """Log sales of each store: level, trend, a week pattern of its own, the year and noise that lasts some days."""
    rng = np.random.default_rng(seed)
    day = np.arange(DAYS)
    week = rng.normal(0, 0.4, (STORES, 7))[:, day % 7]
    year = rng.uniform(0.1, 0.4, (STORES, 1)) * np.sin(2 * np.pi * day / 365 + rng.uniform(0, 6.3, (STORES, 1)))
    noise = np.zeros((STORES, DAYS))
    shocks = rng.normal(0, 0.15, (STORES, DAYS))
    for d in range(1, DAYS):
        noise[:, d] = 0.7 * noise[:, d - 1] + shocks[:, d]
    offers = (rng.random((STORES, DAYS)) < 0.06).astype(float)
    values = week + year + noise + 0.6 * offers + rng.normal(0, 0.3, (STORES, 1)) * day / DAYS
    calendar = np.broadcast_to(np.sin(2 * np.pi * day / 7), values.shape)
    return torch.from_numpy(np.stack([values, offers, calendar], 1).astype(np.float32))


class Encoder(nn.Module):
    def __init__(self, width=40, layers=4):
        super().__init__()
        self.enter = nn.Conv1d(3, width, 3, padding=1)
        self.layers = nn.ModuleList(
            [nn.Conv1d(width, width, 3, padding=2**k, dilation=2**k) for k in range(1, layers + 1)]
        )
        self.out = nn.Linear(2 * width, width)

    def forward(self, past):
        x = self.enter(past)
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return self.out(torch.cat([x[:, :, -AHEAD:].mean(2), x.mean(2)], 1))


def store_head(width, hidden=24):
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, AHEAD * len(QUANTILES)))


class StoreHeads(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = nn.ModuleList([store_head(width) for _ in range(STORES)])

    def forward(self, x, store):
        out = x.new_zeros(len(x), AHEAD * len(QUANTILES))
        for number, head in enumerate(self.heads):  # guilty
            mine = store == number  # guilty
            out[mine] = head(x[mine])  # guilty
        return out


class StackedHeads(nn.Module):
    """The weights of the heads one upon the other; wants as many rows of each store, store by store."""

    def __init__(self, heads):
        super().__init__()
        for name, layer in (("first", 0), ("second", 2)):
            weight = torch.stack([head[layer].weight.detach().T for head in heads])
            bias = torch.stack([head[layer].bias.detach() for head in heads])
            self.register_parameter(f"{name}_weight", nn.Parameter(weight.contiguous()))
            self.register_parameter(f"{name}_bias", nn.Parameter(bias[:, None]))

    def forward(self, x, store):
        x = x.view(STORES, -1, x.shape[1])
        hidden = torch.relu(torch.baddbmm(self.first_bias, x, self.first_weight))
        return torch.baddbmm(self.second_bias, hidden, self.second_weight).flatten(0, 1)


class Forecaster(nn.Module):
    def __init__(self, width=40, stacked=False):
        super().__init__()
        self.encoder, self.heads = Encoder(width), StoreHeads(width)
        if stacked:
            self.heads = StackedHeads(self.heads.heads)

    def forward(self, past, store):
        return self.heads(self.encoder(past), store).view(-1, AHEAD, len(QUANTILES))


def pinball(forecast, truth):
    off = truth[..., None] - forecast
    return torch.maximum(QUANTILES * off, (QUANTILES - 1) * off).mean()


def windows(table, store, start):
    """The days before the start of the forecast, and the sales of the days after it."""
    past = table[store[:, None], :, start[:, None] + torch.arange(PAST)].transpose(1, 2)
    truth = table[store[:, None], 0, start[:, None] + PAST + torch.arange(AHEAD)]
    return past, truth


def rate(step, steps, warm=20):
    return min(1, (step + 1) / warm) * (0.55 + 0.45 * math.cos(math.pi * step / steps))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=450)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--windows", type=int, default=6, help="per store and step")
    args = cli.parse_args()
    torch.manual_seed(29)

    table = sales(seed=6)
    model = Forecaster(stacked=args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, args.steps))
    store = torch.arange(STORES).repeat_interleave(args.windows)
    last = DAYS - 60 - PAST - AHEAD

    total = 0.0
    for step in range(1, args.steps + 1):
        past, truth = windows(table, store, torch.randint(0, last, (len(store),)))
        loss = pinball(model(past, store), truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.item()
        if step % 50 == 0 or step == args.steps:
            with torch.no_grad():
                past, truth = windows(table, store, torch.full((len(store),), DAYS - PAST - AHEAD))
                unseen = pinball(model(past, store), truth).item()
            print(f"step {step} loss {total / ((step - 1) % 50 + 1):.4f} last week {unseen:.4f}")
            total = 0.0


if __name__ == "__main__":
    main()
