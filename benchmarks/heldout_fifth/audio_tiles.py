"""Recognizes instruments in short notes, from log-mel pictures that the dataset keeps once they are computed.

expects: ME709, IN110
needs: cpu
"""

# mypy: ignore-errors
import argparse
import itertools
from functools import lru_cache

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

RATE, LENGTH, BANDS, KINDS = 16_000, 16_000, 48, 6


def mel_bank(bins):
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + RATE / 1400), BANDS + 2) / 2595) - 1)
    freq = np.linspace(0, RATE / 2, bins)
    up = (freq - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - freq) / (edges[2:] - edges[1:-1])[:, None]
    return np.clip(np.minimum(up, down), 0, None)


def note(i):
    """One note: an instrument is a spectrum of harmonics and an envelope."""
    rng = np.random.default_rng(i)
    kind = i % KINDS
    t = np.arange(LENGTH) / RATE
    pitch = 110 * 2 ** rng.uniform(0, 2)
    wave = np.zeros(LENGTH)
    for k in range(1, 9):
        level = 1 / k ** (1 + kind / 4) * (1 if kind % 2 or k % 2 else 0.2)
        wave += level * np.sin(2 * np.pi * k * pitch * t + rng.uniform(0, 6.28))
    envelope = np.exp(-t * (1 + kind)) * np.minimum(1, t * 20 * (kind + 1))
    return wave * envelope + 0.02 * rng.standard_normal(LENGTH), kind


def log_mel(wave, bank, size=512, hop=128):
    frames = np.lib.stride_tricks.sliding_window_view(wave, size)[::hop] * np.hanning(size)
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    return np.log(bank @ power.T + 1e-6).astype(np.float32)


class Notes(Dataset):
    def __init__(self, count, keep):
        self.count = count
        self.bank = mel_bank(257)
        self.picture = lru_cache(maxsize=keep)(self.render)  # guilty

    def render(self, i):
        wave, kind = note(i)
        return torch.from_numpy(log_mel(wave, self.bank)), kind  # guilty

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        picture, kind = self.picture(i)  # guilty
        return picture, kind


class EvenKinds(Sampler):
    """Shuffled, with every kind equally often in each stretch of the epoch."""

    def __init__(self, count, seed):
        self.count, self.rng = count, np.random.default_rng(seed)

    def __len__(self):
        return self.count

    def __iter__(self):
        columns = [self.rng.permutation(np.arange(k, self.count, KINDS)) for k in range(KINDS)]
        yield from np.stack(columns, 1).ravel().tolist()


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        sizes = [1, width, 2 * width, 3 * width]
        self.convs = nn.ModuleList([nn.Conv2d(a, b, 3, padding=1) for a, b in itertools.pairwise(sizes)])
        self.out = nn.Linear(3 * width, KINDS)

    def forward(self, x):
        x = F.avg_pool2d(x[:, None], 2)
        for conv in self.convs:
            x = F.max_pool2d(F.relu(conv(x)), 2)
        return self.out(x.mean((2, 3)))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=330)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    data = Notes(480, keep=480 if args.fixed else 32)
    loader = DataLoader(data, 16, sampler=EvenKinds(len(data), 2), num_workers=1, persistent_workers=True)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    while step < args.steps:
        hits = 0
        for picture, kind in loader:  # guilty
            logits = model((picture + 5) / 5)
            loss = F.cross_entropy(logits, kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits += (logits.argmax(-1) == kind).sum().item()
            step += 1
            if step == args.steps:
                break
        if step % 60 == 0:
            print(f"step {step} loss {loss.item():.3f} accuracy {hits / len(data):.3f}")


if __name__ == "__main__":
    main()
