"""Playlist continuation: Bayesian personalised ranking over a large catalogue of tracks, negatives drawn in batches.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

LISTS, TRACKS = 50_000, 200_000


class Playlists(Dataset):
    """Pairs of a playlist and a track on it; tracks of a kind go together."""

    def __init__(self, pairs=60_000, seed=0):
        rng = np.random.default_rng(seed)
        self.lists = rng.integers(0, LISTS, pairs)
        self.tracks = (self.lists * 4 + rng.integers(0, 400, pairs)) % TRACKS

    def __len__(self):
        return len(self.lists)

    def __getitems__(self, idx):
        idx = np.asarray(idx)
        return torch.from_numpy(self.lists[idx]), torch.from_numpy(self.tracks[idx])


class Factors(nn.Module):
    def __init__(self, dim=32, sparse=False):
        super().__init__()
        self.lists = nn.Embedding(LISTS, dim, sparse=sparse)  # guilty
        self.tracks = nn.Embedding(TRACKS, dim, sparse=sparse)  # guilty
        for table in (self.lists, self.tracks):
            nn.init.normal_(table.weight, std=0.05)

    def forward(self, lists, tracks):
        return (self.lists(lists).unsqueeze(1) * self.tracks(tracks)).sum(-1)


class Reranker(nn.Module):
    """A small tower over the product of both factors, trained along with them."""

    def __init__(self, dim=32, width=128):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.out = nn.Linear(width, 1)

    def forward(self, product):
        return self.out(self.net(product)).squeeze(-1)


def bpr(scores):
    return -nn.functional.logsigmoid(scores[:, :1] - scores[:, 1:]).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=550)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--negatives", type=int, default=15)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = Playlists()
    loader = DataLoader(
        data, args.batch_size, sampler=RandomSampler(data), collate_fn=lambda pair: pair, drop_last=True
    )
    factors, tower = Factors(sparse=args.fixed), Reranker()
    optimizers = [
        torch.optim.Adagrad(factors.parameters(), lr=0.05),
        torch.optim.Adam(tower.parameters(), lr=1e-3),
    ]
    step = 0
    while step < args.steps:
        for lists, positive in loader:
            negative = torch.randint(0, TRACKS, (len(lists), args.negatives))
            tracks = torch.cat([positive.unsqueeze(1), negative], 1)
            product = factors.lists(lists).unsqueeze(1) * factors.tracks(tracks)
            loss = bpr(product.sum(-1)) + bpr(tower(product))
            for opt in optimizers:
                opt.zero_grad()
            loss.backward()  # guilty
            for opt in optimizers:
                opt.step()  # guilty
            step += 1
            if step % 50 == 0:
                print(f"step {step} bpr {loss.item():.4f}")
            if step >= args.steps:
                break


if __name__ == "__main__":
    main()
