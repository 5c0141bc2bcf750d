"""A small set of JPEG files, decoded the same way in every epoch.

expects: IN110
needs: cpu
"""
# mypy: ignore-errors

import argparse

import numpy as np
import torch
from making import jpegs
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


def decode(path):
    image = Image.open(path).convert("RGB").resize((40, 40), Image.BICUBIC)
    return torch.from_numpy(np.asarray(image, np.float32).transpose(2, 0, 1) / 255)


class Pictures(Dataset):
    def __init__(self, paths, cached):
        self.paths = paths
        self.ready = [decode(path) for path in paths] if cached else None

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        picture = decode(self.paths[i]) if self.ready is None else self.ready[i]  # guilty
        return {"picture": picture, "label": i % 7}


def epochs(loader, steps):
    done = 0
    while True:
        for batch in loader:
            yield batch
            done += 1
            if done == steps:
                return


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = Pictures(jpegs("pictures", 96, 360), args.fixed)
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=1, persistent_workers=True)  # guilty
    net = nn.Sequential(
        nn.Conv2d(3, 12, 3), nn.ReLU(), nn.Conv2d(12, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 18 * 18, 7)
    )
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for batch in epochs(loader, args.steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(batch["picture"]), batch["label"]).backward()
        optimizer.step()
