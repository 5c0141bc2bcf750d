"""Keyword spotting: log-mel features of noisy one-second clips, and a small convolutional network.

expects: IN101
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, WINDOW, HOP, MELS = 8000, 512, 100, 40

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()


def mel_filters():
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, MELS + 2) / 2595) - 1)
    bins = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)


class Clips(Dataset):
    """Each word is a chord; every reading shifts it in time and adds new noise."""

    def __init__(self, count=1024, words=10):
        self.labels = np.random.default_rng(0).integers(0, words, count)
        self.filters = torch.from_numpy(mel_filters())
        self.window = np.hanning(WINDOW).astype(np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        word = self.labels[index]
        rng = np.random.default_rng([index, int(torch.randint(1 << 30, ()))])
        time = np.arange(RATE) / RATE
        wave = np.sin(2 * np.pi * (200 + 90 * word) * time) + np.sin(2 * np.pi * (500 + 130 * word) * time)
        wave = np.roll(wave, rng.integers(RATE // 4)) + rng.normal(0, 0.8, RATE)
        frames = np.lib.stride_tricks.sliding_window_view(wave.astype(np.float32), WINDOW)[::HOP] * self.window
        power = torch.from_numpy(np.abs(np.fft.rfft(frames)).astype(np.float32)) ** 2
        return torch.log(self.filters @ power.T + 1e-5)[None], word


torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(  # guilty
    Clips(),
    batch_size=args.batch_size,
    shuffle=True,
    drop_last=True,
    num_workers=1 if args.fixed else 0,
    persistent_workers=args.fixed,
)
model = nn.Sequential(
    nn.Conv2d(1, 16, 5, stride=2, padding=2),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, 10),
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(args.epochs):
    right = 0
    for features, words in loader:
        scores = model(features)
        loss = nn.functional.cross_entropy(scores, words)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += (scores.argmax(1) == words).sum().item()
    print(f"epoch {epoch}: accuracy {right / len(loader.dataset):.3f}")
