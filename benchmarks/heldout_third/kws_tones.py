"""Keyword spotting on synthetic recordings: log-mel spectrograms and a small CNN.

expects: IN109
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    rate: int = 8000
    nfft: int = 512
    hop: int = 40
    mels: int = 40
    batch: int = 16
    keywords: int = 6
    lr: float = 1e-3


def mel_bank(cfg):
    top = 2595 * np.log10(1 + cfg.rate / 2 / 700)
    hz = 700 * (10 ** (np.linspace(0, top, cfg.mels + 2) / 2595) - 1)
    bins = np.floor((cfg.nfft + 1) * hz / cfg.rate).astype(int)
    bank = np.zeros((cfg.mels, cfg.nfft // 2 + 1))
    for m in range(cfg.mels):
        lo, mid, hi = bins[m : m + 3]
        bank[m, lo:mid] = np.linspace(0, 1, mid - lo, endpoint=False)
        bank[m, mid:hi] = np.linspace(1, 0, hi - mid, endpoint=False)
    return bank.T


class Features:
    def __init__(self, cfg):
        self.cfg, self.bank, self.window = cfg, mel_bank(cfg), np.hanning(cfg.nfft)

    def __call__(self, wave):
        frames = np.lib.stride_tricks.sliding_window_view(wave, self.cfg.nfft, -1)  # guilty
        frames = frames[..., :: self.cfg.hop, :] * self.window  # guilty
        power = np.abs(np.fft.rfft(frames)) ** 2  # guilty
        return np.log(power @ self.bank + 1e-6).astype(np.float32)  # guilty


class Recordings(Dataset):
    def __init__(self, cfg, n=640, transform=None):
        rng = np.random.default_rng(9)
        t = np.arange(cfg.rate) / cfg.rate
        self.y = rng.integers(0, cfg.keywords, n)
        f0 = 200 + 150 * self.y + rng.normal(0, 15, n)
        self.wave = np.sin(6.2832 * f0[:, None] * t + 3 * np.sin(20 * t)) + rng.normal(0, 0.5, (n, cfg.rate))
        self.wave = self.wave.astype(np.float32)
        self.transform = transform

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.wave[i] if self.transform is None else self.transform(self.wave[i])
        return torch.from_numpy(x), int(self.y[i])


class KWSNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2, padding=2),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, classes),
        )

    def forward(self, x):
        return self.net(x.unsqueeze(1))


def run(cfg, steps, fixed):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    features = Features(cfg)
    data = Recordings(cfg, transform=features if fixed else None)
    loader = DataLoader(data, cfg.batch, shuffle=True, num_workers=1, persistent_workers=True, drop_last=True)
    model = KWSNet(cfg.keywords)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3 * cfg.lr, total_steps=steps)
    step, hits, seen = 0, 0, 0
    while step < steps:
        for wave, label in loader:
            x = wave if fixed else torch.from_numpy(features(wave.numpy()))  # guilty
            logits = model((x - x.mean()) / x.std())
            loss = nn.functional.cross_entropy(logits, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            hits += (logits.argmax(1) == label).sum().item()
            seen += len(label)
            step += 1
            if step == steps:
                break
        print(f"step {step}: accuracy {hits / seen:.3f}")


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=180)
    cli.add_argument("--fixed", action="store_true")
    options = cli.parse_args()
    run(Config(), options.steps, options.fixed)
