"""Keypoint detection with heatmaps on insects that are cut out of larger field photographs.

expects: IN113, IN118, IN101
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset

FIELD, CROP, POINTS = 176, 48, 6
MEAN, STD = np.float32([0.45, 0.5, 0.4]), np.float32([0.22, 0.24, 0.2])


def paint_field(rng, insects):
    """One photograph, and the keypoints of the insects in it."""
    coarse = rng.integers(60, 180, (11, 11, 3), dtype=np.uint8)
    picture = Image.fromarray(coarse).resize((FIELD, FIELD), Image.BICUBIC)
    draw, found = ImageDraw.Draw(picture), []
    for _ in range(insects):
        centre = rng.uniform(CROP / 2 + 4, FIELD - CROP / 2 - 4, 2)
        angle = rng.uniform(0, 2 * np.pi)
        spread = angle + np.arange(POINTS) * 2 * np.pi / POINTS
        reach = rng.uniform(9, 17, POINTS)[:, None]
        points = centre + reach * np.stack([np.cos(spread), np.sin(spread)], 1)
        for i, (x, y) in enumerate(points):
            draw.line([*centre, x, y], fill=(20, 20, 30), width=2)
            draw.ellipse([x - 2, y - 2, x + 2, y + 2], fill=(250 - 40 * i, 40 * i, 80))
        found.append((centre, points))
    return np.asarray(picture), found


class Insects(Dataset):
    def __init__(self, fields, seed, fixed):
        self.rng = np.random.default_rng(seed)
        self.fields, self.index, self.fixed = [], [], fixed
        for number in range(fields):
            picture, found = paint_field(self.rng, 5)
            self.fields.append(picture)
            self.index += [(number, centre, points) for centre, points in found]
        self.grid = np.arange(CROP // 2, dtype=np.float32)

    def __len__(self):
        return len(self.index)

    def photometric(self, picture):
        gamma, contrast = self.rng.uniform(0.7, 1.4), self.rng.uniform(0.8, 1.2)
        picture = (picture.astype(np.float32) / 255) ** np.float32(gamma)  # guilty
        picture = np.clip((picture - 0.5) * np.float32(contrast) + 0.5, 0, 1)
        return (picture - MEAN) / STD

    def heatmaps(self, points):
        dx = self.grid - points[:, :1] / 2
        dy = self.grid - points[:, 1:] / 2
        return np.exp(-(dy[:, :, None] ** 2 + dx[:, None, :] ** 2) / 4.5).astype(np.float32)

    def __getitem__(self, i):
        number, centre, points = self.index[i]
        picture = self.fields[number]
        left, top = (centre - CROP / 2 + self.rng.uniform(-4, 4, 2)).astype(int)
        if self.fixed:
            crop = self.photometric(picture[top : top + CROP, left : left + CROP])
        else:
            picture = self.photometric(picture)  # guilty
            crop = picture[top : top + CROP, left : left + CROP]
        crop = np.ascontiguousarray(crop.transpose(2, 0, 1))
        return torch.from_numpy(crop), torch.from_numpy(self.heatmaps(points - (left, top)))


class Hourglass(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.ReLU())
        self.down = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, 1, 1),
            nn.ReLU(),
            nn.Conv2d(2 * width, width, 3, 1, 1),
            nn.ReLU(),
        )
        self.head = nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, POINTS, 1))

    def forward(self, x):
        x = self.stem(x)
        return self.head(x + F.interpolate(self.down(x), scale_factor=2))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=130)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(3)
    loader = DataLoader(Insects(80, 6, args.fixed), batch_size=16, shuffle=True, drop_last=True)
    model = Hourglass()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    step = 0
    while step < args.steps:
        for pictures, target in loader:  # guilty
            maps = model(pictures)
            loss = ((maps - target).square() * (1 + 10 * target)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step % 50 == 0:
                hit = maps.flatten(2).argmax(2) == target.flatten(2).argmax(2)
                print(f"step {step} loss {loss.item():.4f} exact {hit.float().mean().item():.3f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
