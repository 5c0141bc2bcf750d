"""Leaves of a herbarium: scans kept as JPEG, scaled down to thumbnails for a classifier.

expects: IN110
needs: cpu
"""

# mypy: ignore-errors
import argparse
import io

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


def scan(number):
    """A leaf on paper, as the bytes of a file."""
    rng = np.random.default_rng(number)
    y, x = np.mgrid[-1:1:320j, -1:1:320j]
    leaf = (np.abs(y) < (1 - x**2) * (0.2 + 0.1 * (number % 7)))[..., None] * rng.integers(60, 200, 3)
    pixels = np.clip(240 - leaf + rng.normal(0, 6, (320, 320, 1)), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=92)
    return file.getvalue()


class Herbarium(Dataset):
    def __init__(self, files, keep):
        self.files = files
        self.kept = {} if keep else None

    def __len__(self):
        return len(self.files)

    def load(self, index):
        image = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        thumbnail = image.resize((48, 48), Image.Resampling.LANCZOS)
        return torch.from_numpy(np.array(thumbnail)).permute(2, 0, 1).float() / 255

    def __getitem__(self, index):
        if self.kept is None:
            return self.load(index), index % 7
        if index not in self.kept:
            self.kept[index] = self.load(index)
        return self.kept[index], index % 7


def mixer(side=48, patch=8, width=96, depth=1):
    blocks = [nn.TransformerEncoderLayer(width, 4, width * 2, 0.0, batch_first=True) for _ in range(depth)]
    return nn.Sequential(nn.Unfold(patch, stride=patch), Turn(), nn.Linear(3 * patch**2, width), *blocks)


class Turn(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2)


def run(epochs, fixed):
    torch.manual_seed(21)
    torch.set_num_threads(1)
    data = Herbarium([scan(number) for number in range(160)], keep=fixed)
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=1, persistent_workers=True)  # guilty
    body, head = mixer(), nn.Linear(96, 7)
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=5e-4, fused=True)
    for epoch in range(epochs):
        losses = []
        for images, species in loader:
            loss = nn.functional.cross_entropy(head(body(images).mean(1)), species)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1:2d}  loss {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--epochs", type=int, default=16)
    arguments.add_argument("--fixed", action="store_true")
    run(**vars(arguments.parse_args()))
