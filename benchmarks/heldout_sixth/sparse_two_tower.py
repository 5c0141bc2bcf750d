"""A two-tower recommender with large sparse tables, in-batch negatives and a correction for popular items.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

USERS, ITEMS, GENRES, HISTORY = 60_000, 40_000, 30, 12


class Plays(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        genre = rng.integers(0, GENRES, ITEMS)
        by_genre = [np.flatnonzero(genre == g) for g in range(GENRES)]
        taste = rng.integers(0, GENRES, USERS)
        self.user = rng.integers(0, USERS, n)
        picks = rng.power(0.4, (n, HISTORY + 1))
        rows = [by_genre[taste[user]] for user in self.user]
        items = np.stack([row[(len(row) * pick).astype(int)] for row, pick in zip(rows, picks, strict=False)])
        self.history, self.item = items[:, :-1], items[:, -1]
        counts = np.bincount(self.item, minlength=ITEMS) + 1.0
        self.log_share = np.log(counts / counts.sum()).astype(np.float32)

    def __len__(self):
        return len(self.user)

    def __getitem__(self, rows):
        item = self.item[rows]
        parts = self.user[rows], self.history[rows], item, self.log_share[item]
        return tuple(torch.from_numpy(part) for part in parts)


class TwoTower(nn.Module):
    def __init__(self, width=48, hidden=192):
        super().__init__()
        self.user = nn.Embedding(USERS, width, sparse=True)
        self.item = nn.Embedding(ITEMS, width, sparse=True)
        self.watched = nn.EmbeddingBag(ITEMS, width, mode="mean", sparse=True)
        for table in (self.user, self.item, self.watched):
            nn.init.normal_(table.weight, std=0.1)
        self.query = self.tower(2 * width, hidden, 64)
        self.key = self.tower(width, hidden, 64)

    @staticmethod
    def tower(inputs, hidden, outputs):
        return nn.Sequential(
            nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, outputs)
        )

    def forward(self, user, history, item):
        query = self.query(torch.cat([self.user(user), self.watched(history)], 1))
        key = self.key(self.item(item))
        return F.normalize(query, dim=1) @ F.normalize(key, dim=1).T

    def tables(self):
        return [self.user.weight, self.item.weight, self.watched.weight]

    def towers(self):
        return [*self.query.parameters(), *self.key.parameters()]


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=400)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=384)
    cli.add_argument("--temperature", type=float, default=0.1)
    args = cli.parse_args()
    torch.manual_seed(80)
    plays = Plays(30_000, 81)
    order = RandomSampler(plays, generator=torch.Generator().manual_seed(82))
    loader = DataLoader(plays, batch_size=None, sampler=BatchSampler(order, args.batch_size, drop_last=True))
    model = TwoTower()
    optimizers = [
        torch.optim.SparseAdam(model.tables(), lr=2e-3),
        torch.optim.AdamW(model.towers(), lr=1e-3),
    ]
    step = 0
    while step < args.steps:
        for user, history, item, log_share in loader:
            scores = model(user, history, item) / args.temperature - log_share
            own = torch.arange(len(user))
            twins = (item[:, None] == item[None, :]).fill_diagonal_(False)
            loss = F.cross_entropy(scores.masked_fill(twins, -1e4), own)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            step += 1
            if step % 50 == 0:
                top = scores.detach().topk(10, 1).indices
                recall = (top == own[:, None]).any(1).float().mean().item()
                print(f"step {step} loss {loss.item():.4f} recall@10 {recall:.3f}")
            if step == args.steps:
                return


if __name__ == "__main__":
    main()
