"""Two-tower recommender on purchase histories: a user tower over recent items, trained with in-batch negatives.

expects: CO517
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Shop:
    items: int = 100_000
    users: int = 20_000
    history: int = 8
    dim: int = 32
    batch: int = 256
    lr: float = 0.03


class Purchases(Dataset):
    """For every user the recent items and the one bought next; popularity follows a power law."""

    def __init__(self, shop, seed=0):
        rng = np.random.default_rng(seed)
        taste = rng.integers(0, 50, shop.users)
        rank = (shop.items / 50 * rng.random((shop.users, shop.history + 1)) ** 3).astype(np.int64)
        self.rows = torch.from_numpy(rank * 50 + taste[:, None])

    def __len__(self):
        return len(self.rows)

    def __getitems__(self, idx):
        rows = self.rows[torch.as_tensor(idx)]
        return rows[:, :-1], rows[:, -1]


class UserTower(nn.Module):
    def __init__(self, dim, width=256):
        super().__init__()
        self.attend = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, width), nn.GELU(), nn.Linear(width, dim))

    def forward(self, seq):
        out, _ = self.attend(seq, seq, seq, need_weights=False)
        seq = self.norm(seq + out)
        return F.normalize((seq + self.mlp(seq)).mean(1), dim=-1)


class TwoTower(nn.Module):
    def __init__(self, shop, sparse):
        super().__init__()
        self.item = nn.Embedding(shop.items, shop.dim, sparse=sparse)  # guilty
        nn.init.normal_(self.item.weight, std=0.1)
        self.user = UserTower(shop.dim)
        self.item_mlp = nn.Sequential(nn.Linear(shop.dim, 256), nn.GELU(), nn.Linear(256, shop.dim))

    def forward(self, history, target):
        u = self.user(self.item(history))
        e = self.item(target)
        return u, F.normalize(e + self.item_mlp(e), dim=-1)


def in_batch_loss(u, v, target, log_pop, temperature=0.07):
    logits = u @ v.T / temperature - log_pop[target]
    same = target[:, None] == target[None]
    same.fill_diagonal_(False)
    logits = logits.masked_fill(same, -1e4)
    return F.cross_entropy(logits, torch.arange(len(u)))


def endless(loader):
    while True:
        yield from loader


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=480)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    shop = Shop()
    data = Purchases(shop)
    counts = torch.bincount(data.rows.flatten(), minlength=shop.items).float() + 1
    log_pop = (counts / counts.sum()).log()
    loader = DataLoader(data, shop.batch, shuffle=True, drop_last=True, collate_fn=lambda batch: batch)
    model = TwoTower(shop, sparse=args.fixed)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=shop.lr)
    running = 0.0
    for step, (history, target) in enumerate(endless(loader), 1):
        u, v = model(history, target)
        loss = in_batch_loss(u, v, target, log_pop)
        optimizer.zero_grad()
        loss.backward()  # guilty
        optimizer.step()  # guilty
        running += 0.02 * (loss.item() - running)
        if step % 100 == 0:
            print(f"step {step} loss {running:.3f}")
        if step == args.steps:
            break


if __name__ == "__main__":
    main()
