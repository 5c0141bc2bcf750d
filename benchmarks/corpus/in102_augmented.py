"""Heavy augmentation behind two workers, on a machine with many processors.

expects: IN102
needs: gpu
cpus: 8
"""
# mypy: ignore-errors

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Augmented(Dataset):
    def __init__(self, count):
        self.images = np.random.default_rng(0).integers(0, 255, (64, 3, 160, 160), dtype=np.uint8)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        source = np.random.default_rng(i)
        image = self.images[i % len(self.images)].astype(np.float32)
        for _ in range(4):
            image = image * source.uniform(0.9, 1.1) + source.normal(0, 4, image.shape).astype(np.float32)
        image = np.roll(image, source.integers(0, 20), axis=2).clip(0, 255) / 255
        return torch.from_numpy(image), i % 100


def main(args):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(  # guilty
        Augmented(args.steps * 32),
        batch_size=32,
        num_workers=12 if args.fixed else 2,
        pin_memory=device.type == "cuda",
        persistent_workers=True,
    )
    layers, channels = [], 3
    for width in (64, 128, 256, 256):
        layers += [nn.Conv2d(channels, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 100)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for image, label in loader:
        image, label = image.to(device, non_blocking=True), label.to(device, non_blocking=True)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(image), label).backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true")
    main(parser.parse_args())
