"""Card fraud: rare positives are drawn more often by a sampler of its own.

expects: IN111
needs: cpu
"""

# mypy: ignore-errors

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

FEATURES = 30


class Balanced(Sampler):
    """Draws payments by weight: a fraud is as likely as an honest payment."""

    def __init__(self, labels, draws, at_once=False):
        weight = np.where(labels == 1, 0.5 / max(labels.sum(), 1), 0.5 / (labels == 0).sum())
        self.chances = weight / weight.sum()
        self.draws = draws
        self.at_once = at_once
        self.rng = np.random.default_rng(9)

    def __len__(self):
        return self.draws

    def __iter__(self):
        rows = np.arange(len(self.chances))
        if self.at_once:
            yield from self.rng.choice(rows, self.draws, p=self.chances).tolist()
            return
        for _ in range(self.draws):
            yield int(self.rng.choice(rows, p=self.chances))  # guilty


def payments(count=30_000):
    rng = np.random.default_rng(1)
    table = rng.normal(size=(count, FEATURES)).astype(np.float32)
    labels = (table[:, :4].sum(1) + rng.normal(size=count) > 5.2).astype(np.int64)
    return table, labels


def build():
    layers, width = [], FEATURES
    for _ in range(4):
        layers += [nn.Linear(width, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.1)]
        width = 256
    return nn.Sequential(*layers, nn.Linear(width, 1))


def fit(steps, fixed, batch_size=64):
    table, labels = payments()
    dataset = TensorDataset(torch.from_numpy(table), torch.from_numpy(labels).float())
    sampler = Balanced(labels, draws=steps * batch_size, at_once=fixed)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)  # guilty
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    lossfn = nn.BCEWithLogitsLoss()
    for i, (x, y) in enumerate(loader):
        loss = lossfn(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 50 == 0:
            print("step", i, "loss", float(loss))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=230)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    fit(args.steps, args.fixed)
