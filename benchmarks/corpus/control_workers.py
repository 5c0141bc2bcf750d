"""A worker that keeps up with the training.

expects: none
needs: cpu
"""
# mypy: ignore-errors

import argparse
import zlib

import numpy as np
import torch
from making import packed
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self):
        self.blobs = packed(64, (48, 48))

    def __len__(self):
        return 640

    def __getitem__(self, i):
        frame = np.frombuffer(zlib.decompress(self.blobs[i % 64]), np.uint8).reshape(1, 48, 48)
        return torch.from_numpy(frame.astype(np.float32) / 40), i % 5


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Frames(), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True)
    net = nn.Sequential(
        nn.Conv2d(1, 24, 5), nn.ReLU(), nn.Conv2d(24, 24, 5, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5)
    )
    net(torch.zeros(1, 1, 48, 48))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    step = 0
    while True:
        for frames, labels in loader:
            loss = nn.functional.cross_entropy(net(frames), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.steps:
                return


if __name__ == "__main__":
    main()
