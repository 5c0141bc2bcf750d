"""Land cover from satellite tiles that are kept in a remote bucket.

expects: IN104, IN102
needs: cpu
"""

# mypy: ignore-errors
import argparse
import io
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Bucket:
    """Stands for an object store: every request takes a round trip."""

    def __init__(self, latency):
        self.latency = latency
        rng = np.random.default_rng(3)
        self.objects = {}
        for number in range(384):
            kind = number % 6
            bands = rng.normal(kind * 0.2, 1.0, (4, 32, 32)).astype(np.float16)
            buffer = io.BytesIO()
            np.save(buffer, bands)
            self.objects[f"tiles/{kind}/{number:05d}.npy"] = buffer.getvalue()

    def get(self, key):
        time.sleep(self.latency)
        return self.objects[key]


class Tiles(Dataset):
    def __init__(self, bucket):
        self.bucket = bucket
        self.keys = sorted(bucket.objects)

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        key = self.keys[index]
        bands = np.load(io.BytesIO(self.bucket.get(key))).astype(np.float32)
        return bands, int(key.split("/")[1])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(4, 24, 4, stride=4)
        self.blocks = nn.ModuleList(nn.Conv2d(24, 24, 3, padding=1) for _ in range(3))
        self.head = nn.Linear(24, 6)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for block in self.blocks:
            x = x + F.relu(block(x))
        return self.head(x.mean((2, 3)))


def make_loader(args):
    workers = 8 if args.fixed else 2
    return DataLoader(  # guilty
        Tiles(Bucket(args.latency)), args.batch, shuffle=True, num_workers=workers, persistent_workers=True
    )


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--epochs", type=int, default=7)
    cli.add_argument("--batch", type=int, default=16)
    cli.add_argument("--latency", type=float, default=0.006)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    loader, net = make_loader(args), Net()
    sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        for tiles, kinds in loader:
            sgd.zero_grad()
            loss = F.cross_entropy(net(tiles), kinds)
            loss.backward()
            sgd.step()
        print("epoch", epoch, "loss", round(loss.item(), 4))
