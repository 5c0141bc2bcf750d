"""A land-cover network on crops of satellite scenes, which an iterable dataset streams with haze and gamma changes.

expects: IN113, IN118
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SCENE, CROP, CLASSES = 320, 96, 5


def make_scenes(n, seed):
    rng = np.random.default_rng(seed)
    palette = rng.uniform(40, 215, (CLASSES, 3))
    scenes, labels = [], []
    for _ in range(n):
        coarse = rng.integers(0, CLASSES, (SCENE // 16, SCENE // 16))
        label = coarse.repeat(16, 0).repeat(16, 1)
        pixels = palette[label] + rng.normal(0, 18, (SCENE, SCENE, 3))
        scenes.append(pixels.clip(0, 255).astype(np.uint8))
        labels.append(label.astype(np.int64))
    return scenes, labels


class SceneStream(IterableDataset):
    """Endless crops of random scenes."""

    def __init__(self, scenes, labels, seed, crop_first):
        self.scenes, self.labels, self.seed = scenes, labels, seed
        self.crop_first = crop_first

    def atmosphere(self, image, gamma, haze, tint):
        x = image.astype(np.float32) / 255.0
        x = np.power(x + 1e-3, gamma)  # guilty
        grey = x.mean(-1, keepdims=True)
        x = grey + (x - grey) * tint  # guilty
        x = x * (1.0 - haze) + haze
        return np.clip(x, 0.0, 1.0)  # guilty

    def __iter__(self):
        info = get_worker_info()
        rng = np.random.default_rng((self.seed, info.id if info else 0))
        while True:
            k = int(rng.integers(len(self.scenes)))
            top, left = rng.integers(0, SCENE - CROP, 2)
            gamma, haze = rng.uniform(0.7, 1.4), rng.uniform(0.0, 0.3)
            tint = rng.uniform(0.6, 1.4, 3).astype(np.float32)
            window = np.s_[top : top + CROP, left : left + CROP]
            if self.crop_first:
                image = self.atmosphere(self.scenes[k][window], gamma, haze, tint)
            else:
                image = self.atmosphere(self.scenes[k], gamma, haze, tint)[window]  # guilty
            if rng.random() < 0.5:
                image, label = image[:, ::-1], self.labels[k][window][:, ::-1]
            else:
                label = self.labels[k][window]
            yield torch.from_numpy(image.transpose(2, 0, 1).copy()), torch.from_numpy(label.copy())


def block(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class LandNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = block(3, width, 2)
        self.down = nn.Sequential(block(width, 2 * width, 2), block(2 * width, 2 * width))
        self.deep = nn.Sequential(block(2 * width, 4 * width, 2), block(4 * width, 4 * width))
        self.lateral = nn.Conv2d(2 * width, 4 * width, 1)
        self.head = nn.Conv2d(4 * width, CLASSES, 1)

    def forward(self, x):
        mid = self.down(self.stem(x))
        top = F.interpolate(self.deep(mid), scale_factor=2, mode="nearest")
        out = self.head(top + self.lateral(mid))
        return F.interpolate(out, scale_factor=4, mode="bilinear", align_corners=False)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=240)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=8)
    cli.add_argument("--lr", type=float, default=2e-3)
    args = cli.parse_args()
    torch.manual_seed(0)
    scenes, labels = make_scenes(24, 7)
    stream = SceneStream(scenes, labels, 11, crop_first=args.fixed)
    loader = DataLoader(stream, batch_size=args.batch_size, num_workers=1, prefetch_factor=4)
    model = LandNet()
    optimizer = torch.optim.AdamW(model.parameters(), args.lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.steps)
    model.train()
    for step, (image, label) in enumerate(loader, 1):
        loss = F.cross_entropy(model(image), label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} lr {schedule.get_last_lr()[0]:.5f}")
        if step == args.steps:
            break


if __name__ == "__main__":
    main()
