"""Gestures from a wristband: a small set of recordings, many short epochs, settings in a dataclass.

expects: IN105
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Settings:
    recordings: int = 192
    batch: int = 32
    epochs: int = 28
    workers: int = 2
    keep_workers: bool = False
    hidden: int = 48
    lr: float = 1e-3
    seed: int = 5


class Wristband(Dataset):
    """Recordings with warped time. The table of warps is set up by whichever process reads first."""

    def __init__(self, settings):
        self.count = settings.recordings
        self.warps = None

    def _open(self):
        grid = np.linspace(0, 1, 24)
        rng = np.random.default_rng(9)
        knots = np.sort(rng.random((1500, 10)), axis=1)
        self.warps = np.stack([np.interp(grid, np.linspace(0, 1, 10), row) for row in knots]).astype(np.float32)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.warps is None:
            self._open()
        gesture = index % 8
        warp = self.warps[int(torch.randint(len(self.warps), ()))]
        axes = [np.sin((gesture + 1) * (axis + 1) * np.pi * warp) for axis in range(6)]
        return np.stack(axes, axis=1).astype(np.float32), gesture


class Recogniser(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.rnn = nn.GRU(6, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 8)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


def train(settings):
    torch.manual_seed(settings.seed)
    torch.set_num_threads(1)
    loader = DataLoader(  # guilty
        Wristband(settings),
        batch_size=settings.batch,
        shuffle=True,
        num_workers=settings.workers,
        persistent_workers=settings.keep_workers,
    )
    model = Recogniser(settings.hidden)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
    for epoch in range(settings.epochs):
        total = 0.0
        for signals, gestures in loader:
            loss = nn.functional.cross_entropy(model(signals), gestures)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"{epoch:3d} {total / len(loader):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true")
    train(Settings(keep_workers=parser.parse_args().fixed))
