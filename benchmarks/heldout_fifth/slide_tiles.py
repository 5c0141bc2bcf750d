"""A tumour classifier on tiles of stained slides, which are JPEG files that the dataset opens as it needs them.

expects: ME709, IN110, IN113
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset

SLIDE, TILE = 640, 64


def write_slides(folder, slides, seed):
    rng = np.random.default_rng(seed)
    for k in range(slides):
        tissue = np.array([205, 150, 190]) + rng.normal(0, 12, (SLIDE, SLIDE, 3))
        tumour = np.kron(rng.random((10, 10)) < 0.3, np.ones((TILE, TILE))) > 0
        nuclei = rng.random((SLIDE // 4, SLIDE // 4)).repeat(4, 0).repeat(4, 1)
        tissue[(nuclei < 0.06) | (tumour & (nuclei < 0.14))] = (85, 50, 130)
        Image.fromarray(tissue.clip(0, 255).astype(np.uint8)).save(Path(folder) / f"slide_{k:02d}.jpg", quality=90)
        np.save(Path(folder) / f"slide_{k:02d}.npy", tumour[::TILE, ::TILE])


class Tiles(Dataset):
    """All tiles on a grid of all slides."""

    def __init__(self, folder, fixed):
        self.paths = sorted(Path(folder).glob("*.jpg"))
        self.tumour = [np.load(p.with_suffix(".npy")) for p in self.paths]
        self.grid = SLIDE // TILE
        self.slide = lru_cache(maxsize=len(self.paths) if fixed else 4)(self.read)  # guilty

    def __len__(self):
        return len(self.paths) * self.grid**2

    def read(self, k):
        with Image.open(self.paths[k]) as slide:
            return np.asarray(slide.convert("RGB"))  # guilty

    def __getitem__(self, index):
        k, cell = divmod(index, self.grid**2)
        row, col = divmod(cell, self.grid)
        slide = self.slide(k)  # guilty
        tile = slide[row * TILE : (row + 1) * TILE, col * TILE : (col + 1) * TILE]
        x = torch.from_numpy(tile.transpose(2, 0, 1).astype(np.float32) / 255.0)
        if torch.rand(()) < 0.5:
            x = x.flip(-1)
        return (x - 0.6) / 0.25, float(self.tumour[k][row, col])


class Stage(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.a = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.b = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(o), nn.BatchNorm2d(o)
        self.skip = nn.Conv2d(i, o, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.nb(self.b(F.relu(self.na(self.a(x))))) + self.skip(x))


class TileNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 5, 2, 2), Stage(width, width, 1), Stage(width, 2 * width, 2), Stage(2 * width, 96, 2)
        )
        self.out = nn.Linear(96, 1)

    def forward(self, x):
        return self.out(self.body(x).mean((2, 3))).squeeze(1)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=300)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--workers", type=int, default=1)
    args = cli.parse_args()
    torch.manual_seed(21)
    with tempfile.TemporaryDirectory() as folder:
        write_slides(folder, 18, 5)
        loader = DataLoader(
            Tiles(folder, args.fixed),
            12,
            shuffle=True,
            drop_last=True,
            num_workers=args.workers,
            persistent_workers=True,
            prefetch_factor=4,
        )
        model = TileNet()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        step, epoch = 0, 0
        while step < args.steps:
            for tile, tumour in loader:
                logits = model(tile)
                loss = F.binary_cross_entropy_with_logits(logits, tumour.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if step == args.steps:
                    break
            epoch += 1
            right = ((logits > 0) == (tumour > 0.5)).float().mean().item()
            print(f"epoch {epoch} step {step} loss {loss.item():.4f} right {right:.2f}")


if __name__ == "__main__":
    main()
