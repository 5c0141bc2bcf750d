"""Songs of whales, made up from glides, and the loaders that serve them."""

# mypy: ignore-errors
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Songs(Dataset):
    def __init__(self, songs, samples):
        self.songs, self.samples = songs, samples
        self.window = np.hanning(256)

    def __len__(self):
        return self.songs

    def __getitem__(self, index):
        rng = np.random.default_rng([index, int(torch.randint(1 << 30, ()))])
        time = np.linspace(0, 1, self.samples)
        song = np.zeros(self.samples)
        for part in range(1, 4):
            song += np.sin(part * (40 + 30 * (index % 5)) * (time + 0.3 * rng.random() * time**2))
        song += rng.normal(0, 0.3, self.samples)
        frames = np.lib.stride_tricks.sliding_window_view(song, 256)[::128] * self.window
        spectrum = np.log1p(np.abs(np.fft.rfft(frames)))[:, :64]
        return spectrum.astype(np.float32).reshape(-1), index % 5


def make_loader(data, loader, apply_all):
    songs = Songs(**data)
    if apply_all:
        return DataLoader(songs, shuffle=True, persistent_workers=loader["num_workers"] > 0, **loader)
    return DataLoader(songs, shuffle=True, batch_size=loader["batch_size"])  # guilty
