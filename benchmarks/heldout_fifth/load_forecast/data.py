# mypy: ignore-errors
"""Hourly electricity use of households, and windows of it with calendar features."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class LoadWindows(Dataset):
    def __init__(self, cfg, size, seed=0):
        rng = np.random.default_rng(seed)
        hour = np.arange(cfg["hours"])
        phase = rng.uniform(0, 6.28, (cfg["households"], 1))
        base = 1 + 0.5 * np.sin(hour * 2 * np.pi / 24 + phase) + 0.2 * np.sin(hour * 2 * np.pi / 168 + 2 * phase)
        self.use = (base + 0.1 * rng.standard_normal(base.shape)).astype(np.float32)
        self.cfg, self.size, self.seed = cfg, size, seed
        self.epoch = 0

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, i))
        house = rng.integers(len(self.use))
        total = self.cfg["window"] + self.cfg["horizon"]
        start = rng.integers(self.use.shape[1] - total)
        cut = self.use[house, start : start + total]
        past, future = cut[: self.cfg["window"]], cut[self.cfg["window"] :]
        scale = past.std() + 1e-3
        hours = np.arange(start, start + self.cfg["window"]) * 2 * np.pi
        daily, weekly = hours / 24, hours / 168
        feats = np.stack([past / scale, np.sin(daily), np.cos(daily), np.sin(weekly), np.cos(weekly)])
        return torch.from_numpy(feats.astype(np.float32)), torch.from_numpy(future / scale)


def make_loader(dataset, cfg, **extra):
    gen = torch.Generator().manual_seed(3)
    options = {"batch_size": cfg["batch_size"], "num_workers": cfg["num_workers"]}
    options["prefetch_factor"] = cfg["prefetch_factor"]
    return DataLoader(dataset, shuffle=True, generator=gen, **options, **extra)  # guilty
