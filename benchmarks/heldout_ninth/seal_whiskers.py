"""Learns to recognise single seals by their whisker spot patterns: contrastive embedding with a memory bank.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

SEALS, SHOTS, SIDE = 120, 12, 40


class Muzzles(Dataset):
    """Each seal has a fixed set of spots; each photograph shows them shifted, turned and with glare."""

    def __init__(self, seed, seals=SEALS):
        rng = np.random.default_rng(seed)
        self.spots = rng.uniform(-0.7, 0.7, (seals, 14, 2))
        self.seals = np.repeat(np.arange(seals), SHOTS)
        axis = np.linspace(-1, 1, SIDE)
        self.photographs = []
        for seal in self.seals:
            angle, zoom = rng.normal(0, 0.15), rng.normal(1, 0.08)
            turn = zoom * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            spots = self.spots[seal] @ turn + rng.normal(0, 0.06, 2)
            rows = np.exp(-(((axis[:, None] - spots[:, 0]) / 0.07) ** 2))
            columns = np.exp(-(((axis[:, None] - spots[:, 1]) / 0.07) ** 2))
            photograph = 0.7 - 0.5 * rows @ columns.T + rng.normal(0, 0.1, (SIDE, SIDE))
            self.photographs.append(torch.from_numpy(photograph.astype(np.float32)))

    def __len__(self):
        return len(self.seals)

    def __getitem__(self, place):
        return self.photographs[place][None], int(self.seals[place])


class FewOfMany(Sampler):
    """Batches of `seals` animals with `shots` photographs each."""

    def __init__(self, labels, seals, shots, batches, seed):
        self.members = [np.flatnonzero(labels == seal) for seal in np.unique(labels)]
        self.seals, self.shots, self.batches = seals, shots, batches
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            drawn = self.rng.choice(len(self.members), self.seals, replace=False)
            yield [int(place) for seal in drawn for place in self.rng.choice(self.members[seal], self.shots, False)]


class Embedder(nn.Sequential):
    def __init__(self, width=96):
        super().__init__(
            nn.Conv2d(1, 16, 5, 2, 2),
            nn.ReLU(inplace=True),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(32, 48, 3, 2, 1),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Linear(48 * 25, width),
        )

    def forward(self, photographs):
        return F.normalize(super().forward(photographs), dim=1)


def squared_by_difference(a, b):
    difference = a.unsqueeze(1) - b.unsqueeze(0)  # guilty
    return difference.pow(2).sum(2)  # guilty


def squared_by_product(a, b):
    return (a.pow(2).sum(1)[:, None] + b.pow(2).sum(1) - 2 * a @ b.T).clamp(min=0)


class BankLoss(nn.Module):
    """Pulls photographs of a seal within `near`, pushes others beyond `far`, over the batch and recent batches."""

    def __init__(self, measure, batches=24, near=0.1, far=1.2):
        super().__init__()
        self.measure, self.near, self.far = measure, near, far
        self.bank = deque(maxlen=batches)

    def forward(self, codes, seals):
        others = torch.cat([codes, *(old for old, _ in self.bank)])
        owners = torch.cat([seals, *(label for _, label in self.bank)])
        squared = self.measure(codes, others)  # guilty
        same = seals[:, None] == owners
        itself = torch.zeros_like(same)
        itself.fill_diagonal_(True)
        pull = F.relu(squared - self.near) * (same & ~itself)
        push = F.relu(self.far - squared) * ~same
        self.bank.appendleft((codes.detach(), seals))
        return pull.sum() / (pull > 0).sum().clamp(min=1) + push.sum() / (push > 0).sum().clamp(min=1)


@torch.no_grad()
def recall(model, muzzles):
    model.eval()
    codes = model(torch.stack(muzzles.photographs)[:, None])
    model.train()
    likeness = codes @ codes.T
    likeness.fill_diagonal_(-2)
    seals = torch.from_numpy(muzzles.seals)
    return (seals[likeness.argmax(1)] == seals).float().mean().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=240)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--seals", type=int, default=16)
    cli.add_argument("--shots", type=int, default=4)
    args = cli.parse_args()
    torch.manual_seed(6)

    muzzles, strangers = Muzzles(seed=1), Muzzles(seed=2, seals=25)
    sampler = FewOfMany(muzzles.seals, args.seals, args.shots, batches=30, seed=3)
    loader = DataLoader(muzzles, batch_sampler=sampler)
    model = Embedder()
    criterion = BankLoss(squared_by_product if args.fixed else squared_by_difference)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    step = 0
    while step < args.steps:
        total = 0.0
        for count, (photographs, seals) in enumerate(loader, 1):
            loss = criterion(model(photographs), seals)  # guilty
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            step += 1
            if step == args.steps:
                break
        print(f"step {step} loss {total / count:.4f} recall@1 on strangers {recall(model, strangers):.3f}")


if __name__ == "__main__":
    main()
