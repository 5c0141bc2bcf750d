"""Speaker identification from raw speech, with log-mel features computed when a clip is fetched.

expects: IN101
needs: cpu
"""

# mypy: ignore-errors

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, SPEAKERS = 16_000, 24


def mel_bank(bands: int = 40, bins: int = 257) -> np.ndarray:
    edges = np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), bands + 2)
    hertz = 700 * (10 ** (edges / 2595) - 1) / (RATE / 2) * (bins - 1)
    grid = np.arange(bins)[None]
    rising = (grid - hertz[:-2, None]) / (hertz[1:-1] - hertz[:-2])[:, None]
    falling = (hertz[2:, None] - grid) / (hertz[2:] - hertz[1:-1])[:, None]
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)


class Clips(Dataset):
    def __init__(self, count: int, seconds: float = 2.0):
        rng = np.random.default_rng(3)
        self.waves = rng.normal(0, 900, (count, int(RATE * seconds))).astype(np.int16)
        self.speakers = rng.integers(0, SPEAKERS, count)
        self.bank = mel_bank()
        self.window = np.hanning(400).astype(np.float32)

    def __len__(self) -> int:
        return len(self.waves)

    def __getitem__(self, index: int):
        wave = self.waves[index].astype(np.float32) / 32768
        wave = np.append(wave[0], wave[1:] - 0.97 * wave[:-1])
        frames = np.lib.stride_tricks.sliding_window_view(wave, 400)[::160] * self.window
        power = np.abs(np.fft.rfft(frames, 512)) ** 2
        features = np.log(np.einsum("tf,mf->mt", power, self.bank) + 1e-8)
        features = (features - features.mean(1, keepdims=True)) / features.std(1, keepdims=True)
        return torch.from_numpy(features.astype(np.float32)), int(self.speakers[index])


class Tdnn(nn.Module):
    def __init__(self, width: int = 40):
        super().__init__()
        layers = []
        for a, b, dilation in [(40, width, 1), (width, width, 2), (width, width, 3)]:
            layers += [nn.Conv1d(a, b, 3, dilation=dilation), nn.ReLU(), nn.BatchNorm1d(b)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(2 * width, SPEAKERS)

    def forward(self, features):
        hidden = self.body(features)
        return self.head(torch.cat([hidden.mean(2), hidden.std(2)], 1))


class Trainer:
    def __init__(self, args):
        self.args = args
        self.model = Tdnn()
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3)
        workers = {"num_workers": 1, "persistent_workers": True} if args.fixed else {}
        self.loader = DataLoader(Clips(480), batch_size=16, shuffle=True, **workers)  # guilty

    def fit(self):
        step = 0
        while step < self.args.steps:
            for features, speakers in self.loader:
                loss = nn.functional.cross_entropy(self.model(features), speakers)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                step += 1
                if step % 50 == 0:
                    print(f"{step}: {loss.item():.3f}")
                if step >= self.args.steps:
                    break


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=130)
    parser.add_argument("--fixed", action="store_true")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    Trainer(parser.parse_args()).fit()
