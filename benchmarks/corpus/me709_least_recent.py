"""Spectra kept in a cache that throws out the least recently used: in a shuffled epoch, those that come next.

expects: ME709
needs: cpu
"""
# mypy: ignore-errors

import argparse
import zlib
from collections import OrderedDict

import numpy as np
import torch
from making import packed
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLES, SIDE = 96, 176


def spectrum(data):
    pixels = np.frombuffer(zlib.decompress(data), np.uint8).reshape(SIDE, SIDE)
    return torch.from_numpy(np.log1p(np.abs(np.fft.rfft2(pixels))).astype(np.float32)[:64, :64])


class Spectra(Dataset):
    def __init__(self, sources, most, evicts):
        self.sources = sources
        self.most = most
        self.evicts = evicts
        self.cache = OrderedDict()

    def __len__(self):
        return len(self.sources)

    def __getitem__(self, i):
        if i in self.cache:
            self.cache.move_to_end(i)
            return self.cache[i]
        value = spectrum(self.sources[i])
        if self.evicts and len(self.cache) == self.most:
            self.cache.popitem(last=False)  # guilty
        if len(self.cache) < self.most:
            self.cache[i] = value
        return value


def batches(loader, steps):
    done = 0
    while True:
        for batch in loader:
            yield batch
            done += 1
            if done == steps:
                return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = Spectra(packed(SAMPLES, (SIDE, SIDE)), most=64, evicts=not args.fixed)
    loader = DataLoader(dataset, 8, shuffle=True, num_workers=1, persistent_workers=True)  # guilty
    model = nn.Sequential(nn.Flatten(), nn.Linear(64 * 64, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for spectra in batches(loader, args.steps):
        optimizer.zero_grad()
        model(spectra).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
