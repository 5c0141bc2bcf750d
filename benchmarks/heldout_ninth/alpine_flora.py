"""Classifies quadrat photographs of alpine meadows by their dominant plant: small convolutional net on random crops.

expects: IN113
needs: cpu
"""

# mypy: ignore-errors
import argparse
import colorsys
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance
from torch import nn
from torch.utils.data import DataLoader, Dataset

PHOTO, VIEW = 256, 88
PLANTS = ("gentian", "edelweiss", "alpenrose", "arnica", "saxifrage")
HUES = (0.64, 0.16, 0.94, 0.11, 0.80)


def archive(count, seed):
    """Grass with blossoms in the colour of the plant; a second plant grows in between."""
    rng = np.random.default_rng(seed)
    photos = np.empty((count, PHOTO, PHOTO, 3), np.uint8)
    plants = rng.integers(0, len(PLANTS), count)
    for photo, plant in zip(photos, plants):
        coarse = rng.integers(40, 120, (24, 24, 3), dtype=np.uint8) // np.array([2, 1, 3], np.uint8)
        photo[:] = np.asarray(Image.fromarray(coarse).resize((PHOTO, PHOTO), Image.Resampling.BILINEAR))
        for _ in range(70):
            kind = plant if rng.random() < 0.75 else rng.integers(len(PLANTS))
            hue = HUES[kind] + rng.normal(0, 0.02)
            colour = colorsys.hsv_to_rgb(hue % 1, rng.uniform(0.3, 0.9), rng.uniform(0.6, 1))
            y, x, size = *rng.integers(0, PHOTO - 14, 2), rng.integers(5, 14)
            photo[y : y + size, x : x + size] = (np.array(colour) * 255).astype(np.uint8)
    return photos, plants


class Jitter:
    """Random gamma, saturation and a small turn of the hue."""

    def __init__(self, gamma=0.25, saturation=0.3, hue=6):
        self.gamma, self.saturation, self.hue = gamma, saturation, hue

    def __call__(self, image, rng):
        power = float(np.exp(rng.uniform(-self.gamma, self.gamma)))
        image = image.point([round(255 * (level / 255) ** power) for level in range(256)] * 3)  # guilty
        image = ImageEnhance.Color(image).enhance(1 + rng.uniform(-self.saturation, self.saturation))  # guilty
        turn = int(rng.integers(-self.hue, self.hue + 1))
        hue, strength, value = image.convert("HSV").split()  # guilty
        hue = hue.point([(level + turn) % 256 for level in range(256)])
        return Image.merge("HSV", (hue, strength, value)).convert("RGB")  # guilty


class Crop:
    def __init__(self, view, random=True):
        self.view, self.random = view, random

    def __call__(self, image, rng):
        room = (image.width - self.view, image.height - self.view)
        left, top = (int(rng.integers(r + 1)) for r in room) if self.random else (r // 2 for r in room)
        return image.crop((left, top, left + self.view, top + self.view))


class Flip:
    def __call__(self, image, rng):
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else image


class Quadrats(Dataset):
    def __init__(self, photos, plants, stages, seed=0):
        self.photos, self.plants, self.stages, self.seed = photos, plants, stages, seed
        self.visits = np.zeros(len(plants), np.int64)

    def __len__(self):
        return len(self.plants)

    def __getitem__(self, index):
        self.visits[index] += 1
        rng = np.random.default_rng((self.seed, index, int(self.visits[index])))
        image = Image.fromarray(self.photos[index])
        for stage in self.stages:
            image = stage(image, rng)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div_(127.5).sub_(1)
        return pixels, int(self.plants[index])


def network(width=16):
    layers, channels = [], 3
    for number in range(4):
        wide = width * min(2**number, 4)
        layers += [nn.Conv2d(channels, wide, 3, 2, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU(inplace=True)]
        channels = wide
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, len(PLANTS)))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = sum((model(images).argmax(1) == plants).sum().item() for images, plants in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=240)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=8)
    cli.add_argument("--workers", type=int, default=2)
    args = cli.parse_args()
    torch.manual_seed(12)

    photos, plants = archive(160, seed=9)
    stages = [Crop(VIEW), Jitter(), Flip()] if args.fixed else [Jitter(), Crop(VIEW), Flip()]  # guilty
    training = Quadrats(photos[:128], plants[:128], stages)
    held_out = DataLoader(Quadrats(photos[128:], plants[128:], [Crop(VIEW, random=False)]), 32)
    loader = DataLoader(
        training, args.batch, shuffle=True, num_workers=args.workers, persistent_workers=args.workers > 0
    )

    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=args.steps)
    step, epoch, began = 0, 0, time.perf_counter()
    while step < args.steps:
        total = 0.0
        for images, wanted in loader:
            loss = F.cross_entropy(model(images), wanted, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
            step += 1
            if step == args.steps:
                break
        epoch += 1
        if epoch % 3 == 0 or step == args.steps:
            pace = (time.perf_counter() - began) / step
            score = evaluate(model, held_out)
            print(f"epoch {epoch} loss {total:.3f} held-out {score:.3f} ({1000 * pace:.1f} ms/step)")


if __name__ == "__main__":
    main()
