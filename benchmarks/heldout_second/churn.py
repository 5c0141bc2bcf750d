"""Which customers leave: a factorization machine over table columns, with callbacks.

expects: CA601
needs: cpu
"""

# mypy: ignore-errors

import argparse
from dataclasses import dataclass, field

import torch
from torch import nn

COLUMNS, VALUES = 20, 50


@dataclass
class Run:
    model: nn.Module
    train: tuple
    holdout: tuple
    batch: int = 256
    callbacks: list = field(default_factory=list)

    def go(self, steps: int) -> None:
        optimizer = torch.optim.Adagrad(self.model.parameters(), 0.05)
        rows, left = self.train
        for step in range(1, steps + 1):
            chosen = torch.randint(len(rows), (self.batch,))
            loss = nn.functional.binary_cross_entropy_with_logits(self.model(rows[chosen]), left[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for callback in self.callbacks:
                callback(self, step)


class KeepBest:
    def __init__(self, every: int):
        self.every, self.best = every, 0.0

    @torch.no_grad()
    def score(self, run: Run) -> float:
        rows, left = run.holdout
        right = 0
        for piece, truth in zip(rows.split(512), left.split(512), strict=True):
            right += int(((run.model(piece) > 0) == (truth > 0.5)).sum())  # guilty
        return right / len(rows)

    def __call__(self, run: Run, step: int) -> None:
        if step % self.every == 0:
            run.model.eval()
            self.best = max(self.best, self.score(run))  # guilty
            run.model.train()


class FactorizationMachine(nn.Module):
    def __init__(self, rank: int = 24):
        super().__init__()
        self.factors = nn.Embedding(COLUMNS * VALUES, rank)
        self.linear = nn.Embedding(COLUMNS * VALUES, 1)
        self.deep = nn.Sequential(nn.Linear(COLUMNS * rank, 128), nn.ReLU(), nn.Linear(128, 1))
        self.register_buffer("offset", torch.arange(COLUMNS) * VALUES)

    def forward(self, rows):
        index = rows + self.offset
        factors = self.factors(index)
        pairs = (factors.sum(1).square() - factors.square().sum(1)).sum(1) / 2
        return self.linear(index).sum((1, 2)) + 0.01 * pairs + self.deep(factors.flatten(1)).squeeze(1)


def customers(count: int) -> tuple:
    rows = torch.randint(VALUES, (count, COLUMNS))
    return rows, (rows[:, :3].sum(1) + torch.randn(count) * 9 > 75).float()


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=600)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)
keep = KeepBest(every=140 if args.fixed else 5)
run = Run(FactorizationMachine(), customers(20_000), customers(3072), callbacks=[keep])
run.go(args.steps)
print(f"best accuracy on held-out customers: {keep.best:.3f}")
