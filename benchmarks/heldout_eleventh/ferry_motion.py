"""Recognizes what a ferry does (docking, cruising, turning ...) from its motion sensors with a recurrent network.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

CHANNELS, DOINGS = 6, 6


@dataclass
class Config:
    crossings: int = 4
    readings: int = 960_000
    window: int = 24
    windows: int = 32
    hidden: int = 32
    rate: float = 2e-3


def log_crossing(readings, window, windows, rng):
    """Sensor readings of one crossing, kept as whole numbers, and the doing in each passage."""
    passage = window * windows
    doings = rng.integers(0, DOINGS, readings // window)
    paces = 0.05 + 0.04 * np.arange(DOINGS)
    swing = np.cumsum(np.repeat(paces[doings], window))[:, None] + np.arange(CHANNELS)
    height = 12 * np.cos(swing) * (1 + np.repeat(doings, window)[:, None] % 3)
    counts = 100 + np.round(height) + rng.integers(-2, 3, height.shape)
    return counts.astype(np.int16), doings, readings // passage


class Crossings(IterableDataset):
    """Passages of consecutive windows, each from a crossing drawn at random; its level is taken off each crossing."""

    def __init__(self, config, passages, apart, seed):
        rng = np.random.default_rng(seed)
        self.config, self.passages, self.apart, self.seed = config, passages, apart, seed
        self.logs = [log_crossing(config.readings, config.window, config.windows, rng) for _ in range(config.crossings)]

    def replay(self, counts):
        """Readings of a crossing around its own resting level."""
        motion = torch.from_numpy(counts).float()
        return motion.sub_(motion.mean(0)).div_(25)

    def __iter__(self):
        worker = get_worker_info()
        first, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        config = self.config
        for number in range(first, self.passages, workers):
            rng = np.random.default_rng((self.seed, number))
            counts, doings, count = self.logs[rng.integers(len(self.logs))]
            place = int(rng.integers(count)) * config.windows
            motion = self.replay(counts)
            passage = motion[place * config.window : (place + config.windows) * config.window]  # guilty
            if self.apart:
                passage = passage.clone()
            labels = torch.from_numpy(doings[place : place + config.windows])
            yield passage.view(config.windows, config.window, CHANNELS), labels.clone()  # guilty


class Watch(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.enter = nn.Linear(2 * CHANNELS, hidden)
        self.memory = nn.GRU(hidden, hidden, batch_first=True)
        self.leave = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, DOINGS))

    def forward(self, motion):
        level = motion - motion.mean(1, keepdim=True)
        change = F.pad(motion.diff(dim=1), (0, 0, 1, 0))
        states, _ = self.memory(F.relu(self.enter(torch.cat([level, change], 2))))
        return self.leave(states.mean(1))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=250)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(12)

    config = Config()
    crossings = Crossings(config, args.steps, apart=args.fixed, seed=3)
    loader = DataLoader(crossings, batch_size=None, num_workers=1)
    model = Watch(config.hidden)
    optimizer = torch.optim.Adam(model.parameters(), config.rate)
    loss_mean = right_mean = 0.0
    for step, (motion, doings) in enumerate(loader, 1):  # guilty
        said = model(motion)
        loss = F.cross_entropy(said, doings)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        pace = max(0.03, 1 / step)
        loss_mean += pace * (loss.item() - loss_mean)
        right_mean += pace * ((said.argmax(1) == doings).float().mean().item() - right_mean)
        if step % 50 == 0:
            print(f"step {step} loss {loss_mean:.4f} right {right_mean:.3f}")


if __name__ == "__main__":
    main()
