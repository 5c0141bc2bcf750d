"""Embeddings of texture patches with a triplet loss.

expects: IN106
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class TripletPatches(Dataset):
    def __init__(self, identities=60, views=20, size=32):
        rng = np.random.default_rng(8)
        phase = rng.uniform(0, 6.28, (identities, 1, 2))
        freq = rng.uniform(0.1, 0.9, (identities, 1, 2))
        shift = rng.normal(0, 0.4, (identities, views, 2))
        t = np.arange(size)
        row = np.sin(freq[..., 0, None] * t + phase[..., 0, None] + shift[..., 0, None])
        col = np.sin(freq[..., 1, None] * t + phase[..., 1, None] + shift[..., 1, None])
        self.patches = (row[..., :, None] * col[..., None, :]).astype(np.float32)
        self.identities, self.views = identities, views

    def __len__(self):
        return self.identities * self.views

    def __getitem__(self, index):
        who, view = divmod(index, self.views)
        other = (who + 1 + index % (self.identities - 1)) % self.identities
        picks = self.patches[who, view], self.patches[who, (view + 7) % self.views], self.patches[other, view]
        return tuple(torch.from_numpy(p)[None] for p in picks)


class Embedder(nn.Module):
    def __init__(self, out=64):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.fc = nn.Linear(32 * 8 * 8, out)

    def forward(self, x):
        return nn.functional.normalize(self.fc(self.conv(x).flatten(1)), dim=1)


def forever(loader):
    while True:
        yield from loader


def train(args):
    torch.manual_seed(args.seed)
    loader = DataLoader(
        TripletPatches(),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=1,
        persistent_workers=args.fixed,
        drop_last=True,
    )
    net = Embedder()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.TripletMarginLoss(margin=0.5)
    batches = forever(loader)
    for it in range(args.steps):
        if args.fixed:
            anchor, positive, negative = next(batches)
        else:
            anchor, positive, negative = next(iter(loader))  # guilty
        a, p, n = net(torch.cat([anchor, positive, negative])).chunk(3)
        loss = criterion(a, p, n)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if it % 20 == 0:
            print(f"{it:4d} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())
