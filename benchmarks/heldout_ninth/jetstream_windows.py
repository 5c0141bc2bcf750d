"""Forecasts the wind aloft at several sounding stations one day ahead: dilated convolutions on streamed windows.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math
from datetime import datetime, timezone

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

STATIONS, HISTORY, AHEAD, MARKS = 8, 144, 24, 4


def soundings(hours, seed):
    """Hourly wind speeds: seasons, the sun, travelling waves and slow weather."""
    rng = np.random.default_rng(seed)
    stamps = 1_577_836_800 + 3600 * np.arange(hours)
    time = np.arange(hours)[:, None]
    phase = rng.uniform(0, math.tau, STATIONS)
    wind = 30 + 8 * np.cos(math.tau * time / 8766 + 0.2 * phase) + 2 * np.sin(math.tau * time / 24 + phase)
    wind = wind + 5 * np.sin(math.tau * time / 131 + phase)
    slow = rng.normal(0, 1, (hours, STATIONS))
    for hour in range(1, hours):
        slow[hour] += 0.97 * slow[hour - 1]
    return stamps, (wind + slow).astype(np.float32)


def calendar(stamps):
    """Hour, weekday, day of the month and day of the year, each scaled to about [-0.5, 0.5]."""
    marks = []
    for stamp in stamps.tolist():
        moment = datetime.fromtimestamp(stamp, tz=timezone.utc)  # guilty
        year_day = moment.timetuple().tm_yday  # guilty
        row = (moment.hour / 23, moment.weekday() / 6, (moment.day - 1) / 30, (year_day - 1) / 365)
        marks.append([value - 0.5 for value in row])
    return np.asarray(marks, np.float32)


class Soundings:
    """The whole record with its scaling; gives any stretch as values and calendar marks."""

    def __init__(self, stamps, winds, training, tabulate=False):
        self.stamps = stamps
        self.mean, self.std = winds[:training].mean(0), winds[:training].std(0)
        self.values = (winds - self.mean) / self.std
        self.table = calendar(stamps) if tabulate else None

    def stretch(self, first, last):
        if self.table is not None:
            return self.values[first:last], self.table[first:last]
        return self.values[first:last], calendar(self.stamps[first:last])  # guilty


class WindowStream(IterableDataset):
    """Endless windows from a part of the record, in a fresh order each pass."""

    def __init__(self, record, first, last, stride=1, endless=True, seed=0):
        self.record, self.endless, self.seed = record, endless, seed
        self.starts = np.arange(first, last - HISTORY - AHEAD, stride)

    def window(self, start):
        values, marks = self.record.stretch(start, start + HISTORY + AHEAD)  # guilty
        past = np.concatenate([values[:HISTORY], marks[:HISTORY]], 1)
        return torch.from_numpy(past.T.copy()), torch.from_numpy(marks[HISTORY:]), torch.from_numpy(values[HISTORY:])

    def __iter__(self):
        rng = np.random.default_rng(self.seed)
        while True:
            order = rng.permutation(self.starts) if self.endless else self.starts
            for start in order.tolist():
                yield self.window(start)
            if not self.endless:
                return


class Forecaster(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.enter = nn.Conv1d(STATIONS + MARKS, width, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, dilation=2**level) for level in range(5))
        self.leave = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(5))
        self.ahead = nn.Linear(MARKS, width)
        self.out = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, STATIONS))

    def forward(self, past, marks):
        x = self.enter(past)
        for layer, leave in zip(self.layers, self.leave):
            padded = F.pad(x, (2 * layer.dilation[0], 0))
            x = x + leave(F.glu(layer(padded), 1))
        summary = x[:, :, -1:].transpose(1, 2).expand(-1, AHEAD, -1)
        return self.out(torch.cat([summary, self.ahead(marks)], 2)) + past[:, None, :STATIONS, -1]


@torch.no_grad()
def validate(model, loader):
    model.eval()
    errors = [(model(past, marks) - future).abs().mean().item() for past, marks, future in loader]
    model.train()
    return sum(errors) / len(errors)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=300)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=32)
    args = cli.parse_args()
    torch.manual_seed(6)
    stamps, winds = soundings(9000, 7)
    record = Soundings(stamps, winds, training=8000, tabulate=args.fixed)
    loader = DataLoader(WindowStream(record, 0, 8000), args.batch)
    checks = DataLoader(WindowStream(record, 8000, 9000, stride=24, endless=False), args.batch)

    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    total = 0.0
    for step, (past, marks, future) in enumerate(loader, 1):
        loss = F.smooth_l1_loss(model(past, marks), future)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
        if step % 100 == 0:
            print(f"step {step} loss {total / 100:.4f} validation {validate(model, checks):.4f}")
            total = 0.0
        if step == args.steps:
            break
    print(f"last loss {loss.item():.4f} validation {validate(model, checks):.4f}")


if __name__ == "__main__":
    main()
