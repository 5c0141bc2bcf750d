"""Plankton silhouettes: a trainer class that turns and stretches every image of a batch before the model sees it.

expects: IN109
needs: cpu
"""

# mypy: ignore-errors
import argparse
import random

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 64


def draw(number):
    rng = random.Random(number)
    image = Image.new("L", (SIDE, SIDE))
    pen = ImageDraw.Draw(image)
    for _ in range(number % 6 + 1):
        x, y, r = rng.randrange(10, 54), rng.randrange(10, 54), rng.randrange(3, 12)
        pen.ellipse((x - r, y - r, x + r, y + r), fill=rng.randrange(80, 255))
    return image


def distort(image):
    angle = float(torch.rand(()) * 360)
    image = image.resize((SIDE * 2, SIDE * 2), Image.Resampling.BICUBIC).rotate(angle, Image.Resampling.BICUBIC)
    image = image.filter(ImageFilter.GaussianBlur(1 + float(torch.rand(()))))
    return image.resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def as_array(image):
    return np.asarray(image, dtype=np.uint8)


class Plankton(Dataset):
    def __init__(self, count, transform=None):
        self.images = [draw(number) for number in range(count)]
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        return as_array(self.transform(image) if self.transform else image), index % 6


class Trainer:
    def __init__(self, model, data, augment_batches, lr=0.01):
        self.model = model
        self.loader = DataLoader(data, 32, shuffle=True, num_workers=1, persistent_workers=True)
        self.augment_batches = augment_batches
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    def prepare(self, images):
        if self.augment_batches:
            images = torch.stack(
                [torch.from_numpy(as_array(distort(Image.fromarray(i.numpy())))) for i in images]
            )  # guilty
        return images.float().flatten(1) / 127.5 - 1

    def fit(self, epochs):
        for epoch in range(epochs):
            for images, labels in self.loader:
                x = self.prepare(images)  # guilty
                loss = nn.functional.cross_entropy(self.model(x), labels)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            print(f"epoch {epoch} loss {loss.item():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = [nn.Linear(SIDE * SIDE, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 6)]
    plankton = Plankton(512, transform=distort if args.fixed else None)
    Trainer(nn.Sequential(*layers), plankton, augment_batches=not args.fixed).fit(args.epochs)
