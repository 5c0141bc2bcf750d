"""Event recordings, counted and upsampled to whole frames of which a small window is trained on.

expects: IN113
needs: cpu
"""
# mypy: ignore-errors

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROWS, COLUMNS, STEPS, BINS = 144, 192, 48, 8
SCALE, WINDOW = 3, 48


def record(folder, count):
    """Packed bits, a file a recording."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    source = np.random.default_rng(0)
    for i in range(count):
        np.save(folder / f"{i:03d}.npy", source.integers(0, 256, (STEPS, ROWS, COLUMNS // 8), dtype=np.uint8))
    return sorted(folder.glob("*.npy"))


def upsampled(rates):
    tall = np.repeat(rates, SCALE, axis=1)  # guilty
    return np.repeat(tall, SCALE, axis=2)  # guilty


def counted(packed):
    bits = np.unpackbits(packed, axis=-1)  # guilty
    counts = bits.reshape(BINS, STEPS // BINS, bits.shape[1], bits.shape[2]).astype(np.float32)  # guilty
    return np.add.reduce(counts, axis=1) / (STEPS // BINS)  # guilty


class Recordings(Dataset):
    def __init__(self, files, length, crop_first):
        self.files = files
        self.length = length
        self.crop_first = crop_first

    def __len__(self):
        return self.length

    def window(self, i):
        draw = np.random.default_rng(i)
        step = 8 * SCALE
        top = int(draw.integers((ROWS * SCALE - WINDOW) // step)) * step
        left = int(draw.integers((COLUMNS * SCALE - WINDOW) // step)) * step
        return top, left

    def __getitem__(self, i):
        packed = np.load(self.files[i % len(self.files)], mmap_mode="r")
        top, left = self.window(i)
        if self.crop_first:
            rows = slice(top // SCALE, (top + WINDOW) // SCALE)
            columns = slice(left // SCALE // 8, (left + WINDOW) // SCALE // 8)
            return torch.from_numpy(upsampled(counted(packed[:, rows, columns])))
        frame = upsampled(counted(packed))  # guilty
        return torch.from_numpy(frame[:, top : top + WINDOW, left : left + WINDOW].copy())  # guilty


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = Recordings(record("recordings", 12), args.steps * 4, args.fixed)
    loader = DataLoader(dataset, batch_size=4, num_workers=1)
    model = nn.Sequential(nn.Conv2d(BINS, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, BINS, 3, padding=1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for frames in loader:
        optimizer.zero_grad()
        (model(frames) - frames).abs().mean().backward()
        optimizer.step()
