"""Forecasts the load of power stations and keeps a tracker informed; settings are in `config.yaml`.

expects: SY305
needs: cpu
"""

# mypy: ignore-errors

import argparse
from pathlib import Path

import torch
import yaml
from torch import nn
from tracker import Tracker, TrackerService


def synthesize(stations, hours):
    hour = torch.arange(hours)[:, None]
    daily = torch.sin(2 * torch.pi * (hour / 24 + torch.rand(stations)))
    return daily + 0.1 * torch.randn(hours, stations)


def windows(load, history, horizon, batch_size):
    """Endless random pieces: what was, and what came after."""
    while True:
        starts = torch.randint(len(load) - history - horizon, (batch_size,)).tolist()
        pieces = torch.stack([load[start : start + history + horizon] for start in starts])
        yield pieces[:, :history].flatten(1), pieces[:, history:].flatten(1)


class Forecaster(nn.Module):
    def __init__(self, stations, history, horizon, width):
        super().__init__()
        self.squeeze = nn.Linear(stations * history, width)
        self.mix = nn.Sequential(nn.LayerNorm(width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.spread = nn.Linear(width, stations * horizon)

    def forward(self, past):
        return self.spread(self.mix(self.squeeze(past)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default=Path(__file__).parent / "config.yaml", type=Path)
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(4)
    config = yaml.safe_load(args.config.read_text())
    series, training = config["series"], config["training"]

    service = TrackerService()
    service.start()
    tracker = Tracker(service.address, every=60 if args.fixed else config["tracker"]["heartbeat_every"])
    load = synthesize(series["stations"], series["hours"])
    pieces = windows(load, series["history"], series["horizon"], training["batch_size"])
    model = Forecaster(series["stations"], series["history"], series["horizon"], training["width"])
    optimizer = torch.optim.Adam(model.parameters(), lr=training["lr"])
    for step in range(1, args.steps + 1):
        past, future = next(pieces)
        loss = nn.functional.l1_loss(model(past), future)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tracker.report(step, loss=loss.item())
    tracker.close()
    print(f"final loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
