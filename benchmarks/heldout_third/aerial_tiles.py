"""Land cover from aerial tiles stored as arrays, learned on random crops.

expects: IN113
needs: cpu
"""

# mypy: ignore-errors
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

MEAN, STD = np.float32([0.4, 0.45, 0.35]), np.float32([0.2, 0.2, 0.25])


def write_tiles(folder, n=12, size=512):
    rng = np.random.default_rng(14)
    for i in range(n):
        kind = np.kron(rng.integers(0, 4, (8, 8)), np.ones((size // 8, size // 8), int)).astype(np.uint8)
        colour = np.uint8([[60, 90, 40], [120, 110, 90], [30, 50, 120], [160, 160, 150]])[kind]
        noisy = colour + rng.integers(0, 40, (size, size, 1), dtype=np.uint8)
        np.save(os.path.join(folder, f"tile{i}.npy"), noisy)
        np.save(os.path.join(folder, f"kind{i}.npy"), kind)


class Tiles(Dataset):
    def __init__(self, folder, n, crop, fixed):
        self.crop, self.n, self.fixed = crop, n, fixed
        self.tiles = [np.load(os.path.join(folder, f"tile{i}.npy"), mmap_mode="r") for i in range(12)]
        self.kinds = [np.load(os.path.join(folder, f"kind{i}.npy"), mmap_mode="r") for i in range(12)]

    def __len__(self):
        return self.n

    def normalise(self, image):
        image = image.astype(np.float32) / 255  # guilty
        image = np.power(image, np.float32(1 / 1.8))  # guilty
        return (image - MEAN) / STD  # guilty

    def __getitem__(self, index):
        tile, kind = self.tiles[index % 12], self.kinds[index % 12]
        top, left = torch.randint(0, tile.shape[0] - self.crop, (2,)).tolist()
        window = np.s_[top : top + self.crop, left : left + self.crop]
        if self.fixed:
            image = self.normalise(tile[window])
        else:
            image = self.normalise(tile)[window]  # guilty
        x = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))
        return x, torch.from_numpy(kind[window].astype(np.int64))


def segmenter(w=8):
    layers, cin = [], 3
    for cout in (w, w, 2 * w, 2 * w):
        layers += [nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.SiLU()]
        cin = cout
    return nn.Sequential(*layers, nn.Conv2d(cin, 4, 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--crop", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_tiles(folder)
        data = Tiles(folder, args.steps * args.batch_size, args.crop, args.fixed)
        loader = DataLoader(data, batch_size=args.batch_size, num_workers=1, prefetch_factor=4)
        net = segmenter()
        optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 60, 0.3)
        for i, (x, y) in enumerate(loader):  # guilty
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            if i % 30 == 0:
                print(i, f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
