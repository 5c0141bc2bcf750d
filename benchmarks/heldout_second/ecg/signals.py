"""Heartbeats, and the cleaning they need before a network sees them."""

# mypy: ignore-errors

import numpy as np
import torch
from torch.utils.data import Dataset

LEADS, SAMPLES = 4, 500


def clean(beats: np.ndarray) -> np.ndarray:
    """Removes the wandering baseline (a running median) and the hum of the mains."""
    padded = np.pad(beats, [(0, 0)] * (beats.ndim - 1) + [(12, 12)], mode="edge")
    baseline = np.median(np.lib.stride_tricks.sliding_window_view(padded, 25, axis=-1), axis=-1)  # guilty
    spectrum = np.fft.rfft(beats - baseline, axis=-1)
    spectrum[..., 48:53] = 0
    return np.fft.irfft(spectrum, SAMPLES, axis=-1).astype(np.float32)


class Beats(Dataset):
    def __init__(self, count: int = 1024, cleaned: bool = False):
        rng = np.random.default_rng(12)
        self.rhythm = rng.integers(0, 5, count)
        phase = np.arange(SAMPLES) / SAMPLES * 2 * np.pi * (2 + self.rhythm[:, None, None])
        noise = rng.normal(0, 0.3, (count, LEADS, SAMPLES))
        self.beats = (np.sin(phase) + noise).astype(np.float32)
        self.cleaned = cleaned

    def __len__(self):
        return len(self.beats)

    def __getitem__(self, index):
        beats = self.beats[index]
        if self.cleaned:
            beats = clean(beats)
        return torch.from_numpy(beats), int(self.rhythm[index])
