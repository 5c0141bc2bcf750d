"""Patches of microscope slides; the slides are stored compressed, and the last few opened are kept.

expects: ME709, IN110
needs: cpu
"""

# mypy: ignore-errors
import argparse
import zlib
from functools import lru_cache

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PATCH = 32


def stored_slides(count, side=384):
    rng = np.random.default_rng(50)
    for number in range(count):
        tissue = rng.integers(0, 40 + 4 * (number % 9), (side, side), dtype=np.uint8)
        yield zlib.compress(tissue.tobytes(), 1), side


class Patches(Dataset):
    def __init__(self, slides=60, patches_per_slide=16, keep=4):
        self.slides = list(stored_slides(slides))
        self.patches_per_slide = patches_per_slide
        self.opened = lru_cache(maxsize=keep)(self.open_slide)  # guilty

    def open_slide(self, number):
        packed, side = self.slides[number]
        return np.frombuffer(zlib.decompress(packed), np.uint8).reshape(side, side)

    def __len__(self):
        return len(self.slides) * self.patches_per_slide

    def __getitem__(self, index):
        number = index // self.patches_per_slide
        slide = self.opened(number)
        top, left = torch.randint(slide.shape[0] - PATCH, (2,)).tolist()
        patch = slide[top : top + PATCH, left : left + PATCH].astype(np.float32) / 64
        return patch.reshape(-1), number % 9


def train(epochs, keep):
    torch.manual_seed(50)
    torch.set_num_threads(1)
    loader = DataLoader(  # guilty
        Patches(keep=keep), batch_size=24, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(nn.Linear(PATCH * PATCH, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 9))
    optimizer = torch.optim.NAdam(model.parameters(), lr=5e-4)
    for epoch in range(epochs):
        total, count = 0.0, 0
        for patches, kinds in loader:
            loss = nn.functional.cross_entropy(model(patches), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item(), count + 1
        print(f"epoch {epoch}: loss {total / count:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--fixed", action="store_true")
    arguments = parser.parse_args()
    train(arguments.epochs, keep=None if arguments.fixed else 4)
