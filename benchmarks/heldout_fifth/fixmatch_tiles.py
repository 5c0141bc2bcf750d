"""FixMatch on small textured tiles: a loader of labelled and one of unlabelled tiles, each view augmented in a worker.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIZE, CLASSES = 40, 8


def make_tiles(n, seed):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, CLASSES, n)
    line = np.linspace(0, 6.28, SIZE)
    tiles = np.empty((n, SIZE, SIZE, 3), np.uint8)
    for i, k in enumerate(label):
        wave = np.sin((k % 4 + 1) * line[:, None] + rng.uniform(0, 6)) * np.cos((k // 4 + 1) * line + rng.uniform(0, 6))
        tiles[i] = (127 + 60 * wave[..., None] * rng.uniform(0.5, 1, 3) + rng.normal(0, 15, (SIZE, SIZE, 3))).clip(
            0, 255
        )
    return tiles, label


def weak(tile, rng):
    if rng.random() < 0.5:
        tile = tile[:, ::-1]
    dy, dx = rng.integers(-4, 5, 2)
    return np.roll(tile, (dy, dx), (0, 1))


def strong(tile, rng):
    x = weak(tile, rng).astype(np.float32)
    x = (x - 127) * rng.uniform(0.5, 1.5) + 127 + rng.uniform(-40, 40)
    y0, x0 = rng.integers(0, SIZE - 12, 2)
    x[y0 : y0 + 12, x0 : x0 + 12] = 127
    return x


def as_tensor(tile):
    return torch.from_numpy(np.ascontiguousarray(tile.transpose(2, 0, 1), dtype=np.float32) / 255.0)


class Tiles(Dataset):
    def __init__(self, tiles, label, draws, two_views):
        self.tiles, self.label, self.draws, self.two_views = tiles, label, draws, two_views

    def __len__(self):
        return self.draws

    def __getitem__(self, index):
        rng = np.random.default_rng((index, int(self.two_views)))
        k = int(rng.integers(len(self.tiles)))
        first = as_tensor(weak(self.tiles[k], rng))
        if not self.two_views:
            return first, int(self.label[k])
        return first, as_tensor(strong(self.tiles[k], rng))


class WideBlock(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.a, self.b = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.na, self.nb, self.skip = nn.BatchNorm2d(i), nn.BatchNorm2d(o), nn.Conv2d(i, o, 1, stride, bias=False)

    def forward(self, x):
        h = F.leaky_relu(self.na(x), 0.1)
        return self.b(F.leaky_relu(self.nb(self.a(h)), 0.1)) + self.skip(h)


def wide_net(width=24):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1),
        WideBlock(width, 2 * width, 2),
        WideBlock(2 * width, 3 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(3 * width, CLASSES),
    )


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--threshold", type=float, default=0.8)
    args = cli.parse_args()
    torch.manual_seed(23)
    tiles, label = make_tiles(900, 9)
    few = Tiles(tiles[:80], label[:80], 6 * args.steps, two_views=False)
    many = Tiles(tiles[80:], label[80:], 12 * args.steps, two_views=True)
    labelled = DataLoader(few, 6, num_workers=1, prefetch_factor=4)
    unlabelled = DataLoader(many, 12, num_workers=1, prefetch_factor=4)
    model = wide_net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, nesterov=True, weight_decay=5e-4)
    for step, ((x, y), (soft, hard)) in enumerate(zip(labelled, unlabelled, strict=True), 1):
        logits = model(torch.cat([x, soft, hard]))
        seen, guess, pupil = logits.split([len(x), len(soft), len(hard)])
        confidence, pseudo = guess.detach().softmax(1).max(1)
        keep = (confidence > args.threshold).float()
        loss = F.cross_entropy(seen, y) + (F.cross_entropy(pupil, pseudo, reduction="none") * keep).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} kept {keep.mean().item():.2f}")


if __name__ == "__main__":
    main()
