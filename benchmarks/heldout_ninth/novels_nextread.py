"""Recommends the next novel from a reader's loan history: GRU over item embeddings, sampled softmax.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    novels: int = 24_000
    genres: int = 60
    readers: int = 4_000
    history: int = 12
    negatives: int = 24
    width: int = 48
    batch: int = 128
    rate: float = 2e-3
    smoothing: float = 0.75


def lend(config, seed=5):
    """Loans that follow a reader's two favourite genres, weighted by how well known a novel is."""
    rng = np.random.default_rng(seed)
    genre = rng.integers(0, config.genres, config.novels)
    fame = rng.pareto(1.1, config.novels) + 0.05
    shelves = [np.flatnonzero(genre == number) for number in range(config.genres)]
    odds = [fame[shelf] / fame[shelf].sum() for shelf in shelves]
    loans = np.empty((config.readers, config.history + 1), np.int64)
    for reader in range(config.readers):
        liked = rng.integers(0, config.genres, 2)
        half = config.history // 2
        first = rng.choice(shelves[liked[0]], half + 1, p=odds[liked[0]])
        second = rng.choice(shelves[liked[1]], config.history - half, p=odds[liked[1]])
        loans[reader] = rng.permutation(np.concatenate([first, second]))
    return loans


class PopularityDraw:
    """Draws novels with a probability that grows with their number of loans."""

    def __init__(self, loans, config, tabulated):
        counts = np.bincount(loans.ravel(), minlength=config.novels) + 0.5
        self.odds = counts**config.smoothing
        self.odds /= self.odds.sum()
        self.rng = np.random.default_rng(17)
        self.table = None
        if tabulated:
            self.table = self.odds.cumsum()
            self.table /= self.table[-1]

    def __call__(self, count):
        if self.table is None:
            return self.rng.choice(len(self.odds), count, p=self.odds)  # guilty
        return self.table.searchsorted(self.rng.random(count), side="right")


class Loans(Dataset):
    def __init__(self, loans, draw, config):
        self.loans, self.draw, self.count = loans, draw, config.negatives

    def __len__(self):
        return len(self.loans)

    def __getitem__(self, reader):
        row = self.loans[reader]
        wrong = self.draw(self.count)  # guilty
        wrong = np.where(wrong == row[-1], (wrong + 1) % len(self.draw.odds), wrong)
        return torch.from_numpy(row[:-1]), torch.from_numpy(np.append(row[-1:], wrong))


class NextRead(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.novels = nn.Embedding(config.novels, config.width, sparse=True)
        nn.init.normal_(self.novels.weight, std=0.1)
        self.recur = nn.GRU(config.width, config.width, batch_first=True)
        self.out = nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, config.width))

    def forward(self, history, candidates):
        _, last = self.recur(self.novels(history))
        wish = self.out(last[0])
        return torch.einsum("bd,bkd->bk", wish, self.novels(candidates))

    @torch.no_grad()
    def rank(self, history, target):
        _, last = self.recur(self.novels(history))
        scores = self.out(last[0]) @ self.novels.weight.T
        return (scores > scores.gather(1, target[:, None])).sum(1)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=280)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    config = Config()
    torch.manual_seed(3)

    loans = lend(config)
    held, train = torch.from_numpy(loans[:256]), loans[256:]
    draw = PopularityDraw(train, config, tabulated=args.fixed)
    loader = DataLoader(Loans(train, draw, config), config.batch, shuffle=True, drop_last=True)

    model = NextRead(config)
    dense = [p for name, p in model.named_parameters() if not name.startswith("novels")]
    optimizers = [
        torch.optim.SparseAdam(model.novels.parameters(), config.rate),
        torch.optim.AdamW(dense, config.rate, weight_decay=1e-4),
    ]
    step = 0
    while step < args.steps:
        for history, candidates in loader:  # guilty
            scores = model(history, candidates)
            loss = F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            step += 1
            if step % 100 == 0 or step == args.steps:
                rank = model.rank(held[:, :-1], held[:, -1]).float()
                print(f"step {step} loss {loss.item():.3f} median rank {rank.median().item():.0f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
