"""Sleep staging from EEG: random windows of long recordings, taken again until one is free of artefacts.

expects: IN108
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH = 1024


class Windows(Dataset):
    def __init__(self, recordings=160, seconds=200, rate=128, index_clean=False):
        rng = np.random.default_rng(7)
        self.signals, self.stages = [], rng.integers(0, 5, recordings)
        for number in range(recordings):
            signal = np.cumsum(rng.normal(size=seconds * rate)).astype(np.float32)
            signal -= np.convolve(signal, np.ones(64) / 64, mode="same")
            if number % 40 == 13:
                # A loose electrode: all but a moment of it jumps about.
                signal[: -LENGTH - 40] += 400 * (np.arange(len(signal) - LENGTH - 40)[::-1] % 300 < 2)
            self.signals.append(signal.astype(np.float32))
        self.starts = [self.clean_starts(signal) for signal in self.signals] if index_clean else None

    @staticmethod
    def clean(window):
        spectrum = np.abs(np.fft.rfft(window * np.hanning(LENGTH)))
        return np.abs(window).max() < 200 and spectrum[-100:].mean() < 50

    @staticmethod
    def clean_starts(signal):
        jumps = np.concatenate([[0], np.cumsum(np.abs(signal) >= 200)])
        return np.flatnonzero(jumps[LENGTH:] == jumps[:-LENGTH])

    def __len__(self):
        return len(self.signals)

    def __getitem__(self, index):
        signal = self.signals[index]
        if self.starts is not None:
            start = self.starts[index][int(torch.randint(len(self.starts[index]), ()))]
            return signal[None, start : start + LENGTH], self.stages[index]
        while True:
            start = int(torch.randint(len(signal) - LENGTH, ()))
            window = signal[start : start + LENGTH]
            if self.clean(window):
                return window[None], self.stages[index]


class Stager(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        layers = [nn.Conv1d(1, width, 7, 4, 3), nn.ELU()]
        for _ in range(2):
            layers += [nn.Conv1d(width, width, 7, 1, 3), nn.BatchNorm1d(width), nn.ELU(), nn.AvgPool1d(2)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        return self.head(self.body(x).mean(2))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(7)
    torch.set_num_threads(1)
    windows = Windows(index_clean=args.fixed)
    loader = DataLoader(windows, batch_size=16, shuffle=True, num_workers=1, persistent_workers=True)  # guilty
    model = Stager()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for epoch in range(1, args.epochs + 1):
        for signals, stages in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(signals), stages)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
