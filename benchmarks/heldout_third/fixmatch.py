"""FixMatch with a labelled and an unlabelled loader.

expects: IN104, IN102
needs: cpu
"""

# mypy: ignore-errors
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

SIZE, CLASSES = 32, 6


def textures(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    t = np.arange(SIZE)
    wave = np.sin((0.2 + 0.2 * y)[:, None] * t + rng.uniform(0, 6, (n, 1)))
    x = wave[:, None, :, None] * np.ones((n, 3, SIZE, SIZE)) + rng.normal(0, 0.4, (n, 3, SIZE, SIZE))
    return x.astype(np.float32), y


class Archive:
    """Pictures on a remote host; a request takes as long as the network takes."""

    def __init__(self, items, latency):
        self.items, self.latency = items, latency

    def get(self, key):
        if self.latency:
            time.sleep(self.latency)  # guilty
        return self.items[key]


class Unlabelled(Dataset):
    def __init__(self, archive, n):
        self.archive, self.n = archive, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = torch.from_numpy(self.archive.get(i))  # guilty
        weak = x.flip(-1) if i % 2 else x
        strong = x.roll(int(torch.randint(-6, 7, ())), -1) + 0.2 * torch.randn(x.shape)
        return weak, strong


def endless(loader):
    while True:
        yield from loader


def model():
    layers, c = [], 3
    for w in (16, 32, 48):
        layers += [nn.Conv2d(c, w, 3, 2, 1), nn.BatchNorm2d(w), nn.LeakyReLU(0.1)]
        c = w
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, CLASSES))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--mu", type=int, default=3)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--threshold", type=float, default=0.9)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, y = textures(120, 0)
    labelled = DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), args.batch, shuffle=True)
    archive = Archive(textures(600, 1)[0], 0 if args.fixed else 0.003)
    unlabelled = DataLoader(
        Unlabelled(archive, 600), args.batch * args.mu, shuffle=True, num_workers=1, persistent_workers=True
    )
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9, nesterov=True)
    labelled_it, unlabelled_it = endless(labelled), endless(unlabelled)
    for step in range(args.steps):
        xb, yb = next(labelled_it)
        weak, strong = next(unlabelled_it)  # guilty
        out = net(torch.cat([xb, weak, strong]))
        sup, w, s = out[: len(xb)], out[len(xb) : len(xb) + len(weak)], out[len(xb) + len(weak) :]
        conf, pseudo = w.detach().softmax(1).max(1)
        keep = (conf > args.threshold).float()
        loss = F.cross_entropy(sup, yb) + (F.cross_entropy(s, pseudo, reduction="none") * keep).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"{step} loss {loss.item():.3f} kept {keep.mean().item():.2f}")


if __name__ == "__main__":
    main()
