"""Predicts damage claims of freight shipments from a table: embeddings and residual layers, Trainer with a score board.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

ROWS, NUMBERS, LEVELS = 160_000, 14, (40, 12, 300, 7)


def shipments(rows, seed):
    """Weights, distances and handling counts, with carrier, season, depot and weekday."""
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal((rows, NUMBERS), dtype=np.float32)
    kinds = np.stack([rng.integers(0, levels, rows) for levels in LEVELS], 1)
    risk = sum(np.random.default_rng(k).normal(0, 0.7, levels)[kinds[:, k]] for k, levels in enumerate(LEVELS))
    risk += numbers[:, 0] * numbers[:, 1] + np.maximum(numbers[:, 2], 0) - 0.8 * np.abs(numbers[:, 3]) - 1.5
    claim = rng.random(rows) < 1 / (1 + np.exp(-risk))
    return torch.from_numpy(numbers), torch.from_numpy(kinds), torch.from_numpy(claim.astype(np.float32))


def ranked(scores, claims):
    """Claims found and false alarms, from the highest score down."""
    claims = claims[np.argsort(-scores)]
    return np.cumsum(claims), np.cumsum(1 - claims)


def roc_area(scores, claims):
    found, alarms = ranked(scores, claims)
    return np.trapezoid(found, alarms) / max(found[-1] * alarms[-1], 1)


def average_precision(scores, claims):
    found, alarms = ranked(scores, claims)
    return float((np.diff(found, prepend=0) * found / (found + alarms)).sum() / max(found[-1], 1))


class Board:
    """What the model said in this epoch, and how well it ranks."""

    def __init__(self, keep_fresh=True):
        self.keep_fresh, self.numbers = keep_fresh, {}
        self.clear()

    def clear(self):
        self.scores, self.claims, self.losses = [], [], []

    def add(self, scores, claims, loss):
        self.scores.append(scores.numpy())
        self.claims.append(claims.numpy())
        self.losses.append(loss)
        if self.keep_fresh:
            self.refresh()  # guilty

    def refresh(self):
        scores, claims = np.concatenate(self.scores), np.concatenate(self.claims)  # guilty
        self.numbers["auc"] = roc_area(scores, claims)  # guilty
        self.numbers["precision"] = average_precision(scores, claims)  # guilty
        self.numbers["loss"] = np.mean(self.losses)

    def __str__(self):
        self.refresh()
        return " ".join(f"{name} {value:.4f}" for name, value in self.numbers.items())


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.narrow(F.relu(self.wide(self.norm(x))))


class ClaimModel(nn.Module):
    def __init__(self, width=96, layers=2):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(levels, 8) for levels in LEVELS])
        self.enter = nn.Linear(NUMBERS + 8 * len(LEVELS), width)
        self.layers = nn.Sequential(*(Residual(width) for _ in range(layers)))
        self.leave = nn.Linear(width, 1)

    def forward(self, numbers, kinds):
        looked_up = [table(kind) for table, kind in zip(self.tables, kinds.unbind(1))]
        return self.leave(self.layers(self.enter(torch.cat([numbers, *looked_up], 1)))).squeeze(1)


class Trainer:
    def __init__(self, model, board, batch, print_every):
        self.model, self.board, self.batch, self.print_every = model, board, batch, print_every
        self.optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=1e-3)

    def train_step(self, numbers, kinds, claim):
        logits = self.model(numbers, kinds)
        loss = F.binary_cross_entropy_with_logits(logits, claim)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.board.add(logits.detach().sigmoid(), claim, loss.item())

    def fit(self, table, steps):
        step, epoch = 0, 0
        while step < steps:
            epoch += 1
            self.board.clear()
            for chosen in torch.randperm(len(table[0])).split(self.batch):
                self.train_step(*(column[chosen] for column in table))
                step += 1
                if step % self.print_every == 0 or step == steps:
                    print(f"epoch {epoch} step {step} {self.board}")
                if step == steps:
                    break


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=1200)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=512)
    args = cli.parse_args()
    torch.manual_seed(23)
    board = Board(keep_fresh=not args.fixed)
    Trainer(ClaimModel(), board, args.batch, print_every=150).fit(shipments(ROWS, seed=5), args.steps)


if __name__ == "__main__":
    main()
