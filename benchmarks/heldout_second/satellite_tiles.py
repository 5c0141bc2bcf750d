"""Cloud masks for satellite tiles that lie in a slow object store.

expects: IN104, IN102
needs: cpu
"""

# mypy: ignore-errors

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ObjectStore:
    """Stands in for a bucket: a tile arrives after the latency of one request."""

    def __init__(self, latency: float = 0.011):
        self.latency = latency

    def get(self, key: str) -> np.ndarray:
        time.sleep(self.latency)
        rng = np.random.default_rng(int(key.rsplit("/", 1)[1]))
        return rng.integers(0, 4096, (4, 32, 32), dtype=np.uint16)


class Tiles(Dataset):
    def __init__(self, count: int):
        self.keys = [f"sentinel/2021/{number}" for number in range(count)]
        self.store = ObjectStore()

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        tile = torch.from_numpy(self.store.get(self.keys[index]).astype(np.float32) / 4096)
        return tile, (tile.mean(0) > 0.5).long()


def conv(a: int, b: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())


class TinyUnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.deep, self.up = conv(4, 8), conv(8, 16), conv(24, 8)
        self.mask = nn.Conv2d(8, 2, 1)

    def forward(self, tiles):
        fine = self.down(tiles)
        coarse = self.deep(nn.functional.max_pool2d(fine, 2))
        coarse = nn.functional.interpolate(coarse, scale_factor=2)
        return self.mask(self.up(torch.cat([fine, coarse], 1)))


def train(steps: int, fixed: bool) -> None:
    loader = DataLoader(Tiles(8 * steps), batch_size=8, num_workers=6 if fixed else 1)  # guilty
    model = TinyUnet()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for step, (tiles, masks) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(tiles), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, round(loss.item(), 4))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    train(options.steps, options.fixed)
