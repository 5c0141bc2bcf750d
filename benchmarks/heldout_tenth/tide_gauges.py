"""Forecasts the water level at tide gauges a day ahead (quantiles) with dilated convolutions over the last week.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import queue
import threading

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

PAST, AHEAD = 168, 24
QUANTILES = (0.1, 0.5, 0.9)
PERIODS = np.array([12.42, 12.0, 23.93, 25.82])


class Coast:
    """Hourly levels of several gauges: astronomical tide, surge driven by wind, noise and gaps."""

    def __init__(self, gauges, hours, seed):
        rng = np.random.default_rng(seed)
        clock = np.arange(hours)
        heights, phases = rng.uniform(0.1, 1.0, (gauges, 4)), rng.uniform(0, 2 * np.pi, (gauges, 4))
        waves = np.sin(2 * np.pi * clock[None, None] / PERIODS[:, None] + phases[:, :, None])
        tide = (heights[:, :, None] * waves).sum(1)
        wind = np.cumsum(rng.normal(0, 0.2, (gauges, hours)), 1)
        wind -= np.stack([np.convolve(row, np.ones(96) / 96, "same") for row in wind])
        surge = np.roll(0.3 * wind, 5, axis=1)
        self.level = (tide + surge + rng.normal(0, 0.03, tide.shape)).astype(np.float32)
        self.wind = wind.astype(np.float32)
        self.hour = np.stack([np.sin(2 * np.pi * clock / 24), np.cos(2 * np.pi * clock / 24)]).astype(np.float32)

    def windows(self, rng, batch):
        """Past levels, wind and clock, and the levels of the day after, in units of the past."""
        inputs, wanted = [], []
        for _ in range(batch):
            gauge = rng.integers(len(self.level))
            now = rng.integers(PAST, self.level.shape[1] - AHEAD)
            past, coming = self.level[gauge, now - PAST : now], self.level[gauge, now : now + AHEAD]
            mean, spread = past.mean(), past.std() + 1e-3
            inputs.append(np.vstack([(past - mean)[None] / spread, self.wind[gauge, None, now - PAST : now]]))
            inputs[-1] = np.vstack([inputs[-1], self.hour[:, now - PAST : now]])
            wanted.append((coming - mean) / spread)
        return torch.from_numpy(np.stack(inputs)), torch.from_numpy(np.stack(wanted))


class Feeder(threading.Thread):
    """Keeps a few batches ready in the background."""

    def __init__(self, coast, batch, seed, depth=6, block=False):
        super().__init__(daemon=True)
        self.coast, self.batch, self.block = coast, batch, block
        self.rng = np.random.default_rng(seed)
        self.ready = queue.Queue(depth)
        self.closed = threading.Event()

    def run(self):
        while not self.closed.is_set():
            self.offer(self.coast.windows(self.rng, self.batch))

    def offer(self, windows):
        while not self.closed.is_set():  # guilty
            try:
                return self.ready.put(windows, block=self.block, timeout=0.5)  # guilty
            except queue.Full:  # guilty
                continue  # guilty

    def take(self):
        return self.ready.get()

    def close(self):
        self.closed.set()
        self.join()


class Dilated(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.left = 2 * dilation
        self.mix = nn.Conv1d(width, 2 * width, 3, dilation=dilation)
        self.back = nn.Conv1d(width, width, 1)

    def forward(self, x):
        return x + self.back(F.glu(self.mix(F.pad(x, (self.left, 0))), 1))


class Forecaster(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.enter = nn.Conv1d(4, width, 1)
        self.layers = nn.Sequential(*(Dilated(width, 2**power) for power in range(6)))
        self.leave = nn.Linear(2 * width, AHEAD * len(QUANTILES))

    def forward(self, past):
        h = self.layers(self.enter(past))
        summary = torch.cat([h[:, :, -1], h.mean(2)], 1)
        return self.leave(summary).view(-1, AHEAD, len(QUANTILES))


def pinball(guess, wanted):
    levels = torch.tensor(QUANTILES)
    miss = wanted[:, :, None] - guess
    return torch.maximum(levels * miss, (levels - 1) * miss).mean()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=400)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=64)
    args = cli.parse_args()
    torch.manual_seed(14)

    coast = Coast(gauges=12, hours=12000, seed=30)
    held = Coast(gauges=4, hours=3000, seed=31).windows(np.random.default_rng(32), 256)
    feeder = Feeder(coast, args.batch, seed=33, block=args.fixed)
    feeder.start()
    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=1e-3)
    smooth = None
    for step in range(1, args.steps + 1):
        past, wanted = feeder.take()
        loss = pinball(model(past), wanted)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
        if step % 50 == 0 or step == args.steps:
            print(f"step {step} pinball {smooth:.4f}")
    feeder.close()
    with torch.no_grad():
        print(f"held-out pinball {pinball(model(held[0]), held[1]).item():.4f}")


if __name__ == "__main__":
    main()
