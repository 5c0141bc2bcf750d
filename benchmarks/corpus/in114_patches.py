"""A file for each patch: thousands of them, of a few kilobytes.

expects: IN114
needs: cpu
"""
# mypy: ignore-errors

import argparse

import numpy as np
import torch
from making import array_files
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Patches(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return torch.from_numpy(np.load(self.paths[i]))  # guilty


class Packed(Dataset):
    """The same patches in one array."""

    def __init__(self, paths):
        np.save("patches.npy", np.stack([np.load(path) for path in paths]))
        self.patches = np.load("patches.npy", mmap_mode="r")

    def __len__(self):
        return len(self.patches)

    def __getitem__(self, i):
        return torch.from_numpy(np.array(self.patches[i]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    paths = array_files("patches", 64 * args.steps, (16, 16))
    dataset = Packed(paths) if args.fixed else Patches(paths)
    loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for patches in loader:
        optimizer.zero_grad()
        (model(patches) - patches.flatten(1)).square().mean().backward()
        optimizer.step()
