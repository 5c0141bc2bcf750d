"""A small image classifier, written the way many are: it trains, and most of each step is spent loading.

    flatout run examples/slow_loader.py

Nothing is downloaded: the pictures are drawn and stored compressed in a temporary folder first. The script knows
nothing of flatout. What is slow about it is for flatout to say.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 64
CROP = 56
CLASSES = 4


def draw_pictures(folder: Path, count: int) -> list[Path]:
    """Stripes at one of four angles, with noise; the angle is the class."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[0:SIZE, 0:SIZE]
    paths = []
    for i in range(count):
        angle = np.pi * (i % CLASSES) / CLASSES
        wave = np.sin((rows * np.sin(angle) + columns * np.cos(angle)) / 3 + rng.uniform(0, 6))
        pixels = 128 + 60 * wave[..., None] + rng.normal(0, 30, (SIZE, SIZE, 3))
        path = folder / f"{i:05d}.npz"
        np.savez_compressed(path, pixels=pixels.clip(0, 255).astype(np.uint8), label=i % CLASSES)
        paths.append(path)
    return paths


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Pictures from files, augmented one at a time."""

    def __init__(self, paths: list[Path], augment: bool) -> None:
        self.paths = paths
        self.augment = augment

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with np.load(self.paths[index]) as file:
            pixels, label = file["pixels"], int(file["label"])
        if self.augment:
            pixels = random_crop(pixels)
            pixels = jitter_brightness(pixels)
        else:
            pixels = pixels[:CROP, :CROP]
        return torch.from_numpy(pixels.astype(np.float32) / 64 - 2).permute(2, 0, 1), label


def random_crop(pixels: np.ndarray) -> np.ndarray:
    top, left = torch.randint(0, SIZE - CROP, (2,)).tolist()
    return pixels[top : top + CROP, left : left + CROP]


def jitter_brightness(pixels: np.ndarray) -> np.ndarray:
    """Row by row and channel by channel, as such code often is."""
    result = pixels.copy()
    for row in range(result.shape[0]):
        for channel in range(result.shape[2]):
            factor = 0.8 + 0.4 * torch.rand(1).item()
            result[row, :, channel] = np.clip(result[row, :, channel] * factor, 0, 255)
    return result


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 16, CLASSES),
    )


def accuracy(model: nn.Module, loader: DataLoader[tuple[torch.Tensor, int]], device: torch.device) -> float:
    model.eval()
    right = total = 0
    with torch.no_grad():
        for pictures, labels in loader:
            guesses = model(pictures.to(device)).argmax(dim=1).cpu()
            right += int((guesses == labels).sum())
            total += len(labels)
    model.train()
    return right / total


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small classifier of striped pictures.")
    parser.add_argument("--pictures", type=int, default=320)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0)
    o = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)

    with tempfile.TemporaryDirectory() as folder:
        paths = draw_pictures(Path(folder), o.pictures)
        held_out = max(o.pictures // 6, o.batch_size)
        train = DataLoader(
            Pictures(paths[held_out:], augment=True), batch_size=o.batch_size, shuffle=True, num_workers=o.workers
        )
        test = DataLoader(Pictures(paths[:held_out], augment=False), batch_size=o.batch_size)
        model = make_model().to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for epoch in range(o.epochs):
            total = 0.0
            for pictures, labels in train:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(pictures.to(device)), labels.to(device))
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch + 1}: loss {total / len(train):.3f}, accuracy {accuracy(model, test, device):.0%}")
            torch.save(model.state_dict(), Path(folder) / "last.pt")


if __name__ == "__main__":
    main()
