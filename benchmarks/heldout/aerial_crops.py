"""Segmentation of aerial photographs by small crops, with photometric jitter.

expects: IN113
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CROP = 48


class Photographs(Dataset):
    def __init__(self, count=24, side=224, crop_first=False):
        rng = np.random.default_rng(0)
        coarse = rng.random((count, side // 32, side // 32)) > 0.5
        self.masks = np.kron(coarse, np.ones((1, 32, 32), bool))
        noise = rng.integers(0, 90, (count, side, side, 3), dtype=np.uint8)
        self.photos = noise + (self.masks[..., None] * np.array([40, 90, 20], np.uint8))
        self.crop_first = crop_first

    def __len__(self):
        return 480

    def jitter(self, photo, mask, rng):
        photo = photo.astype(np.float32) / 255
        photo = np.clip(photo * rng.uniform(0.8, 1.2, 3) + rng.uniform(-0.1, 0.1), 0, 1) ** rng.uniform(0.8, 1.25)
        if rng.random() < 0.5:
            photo, mask = photo[::-1], mask[::-1]
        return photo, mask

    def crop(self, photo, mask, rng):
        top, left = rng.integers(0, photo.shape[0] - CROP, 2)
        return photo[top : top + CROP, left : left + CROP], mask[top : top + CROP, left : left + CROP]

    def __getitem__(self, index):
        rng = np.random.default_rng(int(torch.randint(1 << 31, ())))
        photo, mask = self.photos[index % len(self.photos)], self.masks[index % len(self.masks)]
        if self.crop_first:
            photo, mask = self.jitter(*self.crop(photo, mask, rng), rng)
        else:
            photo, mask = self.crop(*self.jitter(photo, mask, rng), rng)  # guilty
        return np.ascontiguousarray(photo.transpose(2, 0, 1), dtype=np.float32), mask.astype(np.float32)


class Segmenter(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, width, 4, stride=4), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
        self.up = nn.Sequential(nn.ReLU(), nn.Conv2d(width, 16, 1), nn.PixelShuffle(4))

    def forward(self, x):
        return self.up(self.down(x)).squeeze(1)


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--fixed", action="store_true")


def main(args):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    photographs = Photographs(crop_first=args.fixed)
    loader = DataLoader(photographs, batch_size=8, num_workers=1, persistent_workers=True)  # guilty
    model = Segmenter()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        for photos, masks in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(photos), masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, f"{loss.item():.4f}")


if __name__ == "__main__":
    main(parser.parse_args())
