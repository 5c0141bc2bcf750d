"""A factorization machine over a stream of ad impressions, with a monitor for the drift of its hidden features.

expects: ME701, HO411
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

FIELDS, BUCKETS, HIDDEN = 12, 500, 128


class Impressions(IterableDataset):
    """Endless batches; the favourite buckets move slowly, as campaigns come and go."""

    def __init__(self, batch_size, seed):
        self.batch_size, self.seed = batch_size, seed

    def __iter__(self):
        rng = np.random.default_rng(self.seed)
        taste = rng.normal(size=(FIELDS, BUCKETS)) / 2
        shift = 0
        offsets = np.arange(FIELDS) * BUCKETS
        while True:
            raw = (rng.geometric(0.02, (self.batch_size, FIELDS)) + shift // 10) % BUCKETS
            score = taste[np.arange(FIELDS), raw].sum(1)
            click = rng.random(self.batch_size) < 1 / (1 + np.exp(1.0 - score))
            shift += 1
            yield torch.from_numpy(raw + offsets), torch.from_numpy(click.astype(np.float32))


class DeepFM(nn.Module):
    def __init__(self, factors=16):
        super().__init__()
        self.linear = nn.Embedding(FIELDS * BUCKETS, 1)
        self.factors = nn.Embedding(FIELDS * BUCKETS, factors)
        nn.init.normal_(self.factors.weight, std=0.05)
        nn.init.zeros_(self.linear.weight)
        self.deep = nn.Sequential(nn.Linear(FIELDS * factors, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
        self.out = nn.Linear(HIDDEN, 1)

    def forward(self, buckets):
        v = self.factors(buckets)
        pairs = 0.5 * (v.sum(1).square() - v.square().sum(1)).sum(1)
        hidden = self.deep(v.flatten(1))
        return self.linear(buckets).sum((1, 2)) + pairs + self.out(hidden).squeeze(1), hidden


class DriftMonitor:
    """How far a batch's mean hidden feature is from the mean over all the stream, relative to the latter's length."""

    def __init__(self):
        self.features = torch.empty(0, HIDDEN)

    @torch.no_grad()
    def update(self, hidden):
        self.features = torch.cat([self.features, hidden])  # guilty
        mean = self.features.mean(0)  # guilty
        return (hidden.mean(0) - mean).norm() / mean.norm()


class RunningDriftMonitor:
    """The same from a running sum."""

    def __init__(self):
        self.count = 0
        self.total = torch.zeros(HIDDEN, dtype=torch.float64)

    @torch.no_grad()
    def update(self, hidden):
        self.count += len(hidden)
        self.total += hidden.sum(0)
        mean = self.total / self.count
        return (hidden.mean(0) - mean).norm() / mean.norm()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=220)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(9)
    stream = iter(DataLoader(Impressions(512, 21), batch_size=None))
    model = DeepFM()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    monitor = RunningDriftMonitor() if args.fixed else DriftMonitor()
    alarms = 0
    for step in range(1, args.steps + 1):
        buckets, click = next(stream)
        logits, hidden = model(buckets)
        loss = F.binary_cross_entropy_with_logits(logits, click)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        drift = monitor.update(hidden.detach())
        alarms += int(drift > 0.2)
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f} drift {drift.item():.3f} alarms {alarms}")


if __name__ == "__main__":
    main()
