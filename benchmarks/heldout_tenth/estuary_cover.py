"""Segments land cover of an estuary in satellite tiles of several scenes: small U-net, Dataset and DataLoader.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import pathlib
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

COVERS = ("water", "mud", "marsh", "field", "town")
TILE, BANDS = 64, 5
SPECTRA = np.random.default_rng(0).uniform(40, 200, (len(COVERS), BANDS))


def smooth(rng, count):
    """Random fields with a few waves."""
    y, x = np.mgrid[0 : 1 : TILE * 1j, 0 : 1 : TILE * 1j].astype(np.float32)
    total = np.zeros((count, TILE, TILE), np.float32)
    for _ in range(4):
        kx, ky, phase = (rng.uniform(-9, 9, (count, 1, 1)).astype(np.float32) for _ in range(3))
        total += np.sin(kx * x + ky * y + phase)
    return total


def make_scene(path, tiles, seed):
    rng = np.random.default_rng(seed)
    height = smooth(rng, tiles)
    cover = np.digitize(height, (-1.6, -0.6, 0.4, 1.6))
    light = rng.uniform(0.8, 1.2, (tiles, 1, 1, 1))
    bands = np.moveaxis(SPECTRA.astype(np.float32)[cover], 3, 1) * light
    bands += 25 * rng.standard_normal(bands.shape, dtype=np.float32)
    np.savez(path, bands=bands.clip(0, 255).astype(np.uint8), cover=cover.astype(np.uint8))


class EstuaryTiles(Dataset):
    def __init__(self, folder, resident=False):
        self.scenes = [np.load(path) for path in sorted(pathlib.Path(folder).glob("*.npz"))]  # guilty
        self.index = [(k, tile) for k, scene in enumerate(self.scenes) for tile in range(len(scene["cover"]))]
        if resident:
            self.scenes = [dict(scene) for scene in self.scenes]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, number):
        k, tile = self.index[number]
        bands = self.scenes[k]["bands"][tile]  # guilty
        cover = self.scenes[k]["cover"][tile]  # guilty
        if np.random.random() < 0.5:
            bands, cover = bands[:, :, ::-1], cover[:, ::-1]
        return torch.from_numpy(bands.astype(np.float32) / 128 - 1), torch.from_numpy(cover.astype(np.int64))


def pair(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down = nn.ModuleList([pair(BANDS, width), pair(width, 2 * width)])
        self.bottom = pair(2 * width, 4 * width)
        self.up = nn.ModuleList([pair(6 * width, 2 * width), pair(3 * width, width)])
        self.head = nn.Conv2d(width, len(COVERS), 1)

    def forward(self, x):
        kept = []
        for stage in self.down:
            kept.append(stage(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.bottom(x)
        for stage in self.up:
            x = stage(torch.cat([F.interpolate(x, scale_factor=2.0), kept.pop()], 1))
        return self.head(x)


def dice(logits, cover):
    share = logits.softmax(1)
    wanted = F.one_hot(cover, len(COVERS)).permute(0, 3, 1, 2)
    return 1 - ((2 * (share * wanted).sum((0, 2, 3)) + 1) / ((share + wanted).sum((0, 2, 3)) + 1)).mean()


def train(folder, args):
    loader = DataLoader(EstuaryTiles(folder, resident=args.fixed), batch_size=args.batch, shuffle=True, drop_last=True)
    model = UNet()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    step, epoch = 0, 0
    while step < args.steps:
        epoch += 1
        total, right, seen = 0.0, 0.0, 0
        for bands, cover in loader:
            logits = model(bands)
            loss = F.cross_entropy(logits, cover) + dice(logits, cover)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step, seen = step + 1, seen + 1
            total += loss.item()
            right += (logits.argmax(1) == cover).float().mean().item()
            if step == args.steps:
                break
        print(f"epoch {epoch} step {step} loss {total / seen:.3f} pixel accuracy {right / seen:.3f}")


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=250)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=8)
    args = cli.parse_args()
    torch.manual_seed(8)
    np.random.seed(8)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(4):
            make_scene(f"{folder}/scene_{number}.npz", tiles=180, seed=number)
        train(folder, args)


if __name__ == "__main__":
    main()
