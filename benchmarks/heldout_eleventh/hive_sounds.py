"""Tells the mood of bee hives from short microphone recordings: spectrograms into a small convolutional network.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, MOODS = 8000, 5


def record_hives(count, seed):
    """Two seconds each: a hum with overtones whose pitch, wobble and roughness come from the mood."""
    rng = np.random.default_rng(seed)
    moods = rng.integers(0, MOODS, count)
    time = np.arange(2 * RATE, dtype=np.float32) / RATE
    clips = np.empty((count, len(time)), np.int16)
    for row, mood in enumerate(moods):
        pitch = 190 + 28 * mood + rng.normal(0, 9)
        phase = 2 * np.pi * pitch * time + (1 + mood / 2) * np.sin(2 * np.pi * (3 + mood) * time + rng.uniform(0, 6))
        hum = np.sin(phase) + 0.5 * np.sin(2 * phase) + 0.3 * np.sin(3 * phase + mood)
        noise = rng.standard_normal(len(time), dtype=np.float32)
        clips[row] = np.clip(5000 * (hum + (0.8 + 0.1 * mood) * noise), -32000, 32000)
    return torch.from_numpy(clips), torch.from_numpy(moods)


class HiveClips(Dataset):
    """Clips with their log spectrograms, squeezed into 64 bands."""

    def __init__(self, count, seed, bands=64, window=1024, hop=128):
        self.clips, self.moods = record_hives(count, seed)
        self.window, self.hop = window, hop
        self.taper = torch.hann_window(window)
        edges = torch.logspace(1.6, 3.55, bands + 2)
        bins = torch.linspace(0, RATE / 2, window // 2 + 1)
        rise = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
        fall = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
        self.bands = torch.minimum(rise, fall).clamp(min=0) + 1e-4

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        clip = self.clips[index].float() / 32768
        waves = torch.stft(clip, self.window, self.hop, window=self.taper, return_complex=True)
        levels = (self.bands @ waves.abs().square()).clamp(min=1e-6).log()
        return (levels - levels.mean()) / levels.std(), self.moods[index]


class Rounds:
    """Deals an epoch out in rounds of a few batches, in one shuffled order for the whole epoch."""

    def __init__(self, data, batch_size, per_round, one_stream, seed=0):
        self.data, self.batch_size, self.per_round = data, batch_size, per_round
        self.one_stream, self.seed = one_stream, seed
        self.epoch = self.dealt = 0
        self.stream = None

    def shuffled(self):
        order = torch.Generator().manual_seed(self.seed + self.epoch)
        return DataLoader(self.data, self.batch_size, shuffle=True, drop_last=True, generator=order)

    def deal(self):
        loader = self.shuffled()
        if self.dealt + self.per_round > len(loader):
            self.epoch, self.dealt, self.stream = self.epoch + 1, 0, None
            loader = self.shuffled()
        start, self.dealt = self.dealt, self.dealt + self.per_round
        if self.one_stream:
            self.stream = self.stream or iter(loader)
            return islice(self.stream, self.per_round)
        return islice(loader, start, self.dealt)  # guilty


def hive_network(width=8):
    def block(inputs, outputs):
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(True), nn.MaxPool2d(2)]

    return nn.Sequential(
        *block(1, width), *block(width, 2 * width), *block(2 * width, 2 * width), *block(2 * width, 2 * width),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(2 * width, MOODS),
    )  # fmt: skip


@torch.no_grad()
def accuracy(model, held):
    model.eval()
    right = sum((model(levels[:, None]).argmax(1) == moods).sum().item() for levels, moods in DataLoader(held, 48))
    model.train()
    return right / len(held)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=120)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--round", type=int, default=6, help="batches between two looks at the held-out hives")
    args = cli.parse_args()
    torch.manual_seed(4)

    hives, held = HiveClips(960, seed=1), HiveClips(48, seed=2)
    rounds = Rounds(hives, 16, args.round, one_stream=args.fixed)
    model = hive_network()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=1e-2)
    step, best = 0, 0.0
    while step < args.steps:
        total = 0.0
        for levels, moods in rounds.deal():  # guilty
            loss = F.cross_entropy(model(levels[:, None]), moods, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            step += 1
        if step % (5 * args.round) == 0:
            score = accuracy(model, held)
            best = max(best, score)
            print(f"step {step} loss {total / args.round:.3f} accuracy {score:.3f} best {best:.3f}")


if __name__ == "__main__":
    main()
