"""A fraud classifier over card payments, whose batch sampler draws rare merchants more often than common ones.

expects: IN111
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

MERCHANTS, NUMERIC = 400, 48


class Payments(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.merchant = (MERCHANTS * rng.power(0.35, n)).astype(np.int64)
        self.numeric = rng.normal(size=(n, NUMERIC)).astype(np.float32)
        score = self.numeric[:, :6].sum(1) + 2.0 * np.sin(self.merchant)
        self.label = (score + rng.normal(size=n) > 3.5).astype(np.float32)

    def __len__(self):
        return len(self.label)

    def __getitems__(self, indices):
        rows = np.asarray(indices)
        return self.merchant[rows], self.numeric[rows], self.label[rows]


def to_tensors(batch):
    return tuple(torch.from_numpy(part) for part in batch)


class RarityBatchSampler(Sampler):
    """Batches in which a payment's chance falls with the number of payments of its merchant."""

    def __init__(self, merchant, batch_size, batches, seed, tempered=0.7, fixed=False):
        counts = np.bincount(merchant, minlength=MERCHANTS)
        weights = 1.0 / counts[merchant] ** tempered
        self.weights = weights / weights.sum()
        self.batch_size, self.batches, self.seed = batch_size, batches, seed
        self.epoch, self.fixed = 0, fixed

    def __len__(self):
        return self.batches

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        rng = np.random.default_rng((self.seed, self.epoch))
        population = len(self.weights)
        if self.fixed:
            cdf = self.weights.cumsum()
            cdf /= cdf[-1]
            for _ in range(self.batches):
                yield cdf.searchsorted(rng.random(self.batch_size), side="right")
            return
        for _ in range(self.batches):
            yield [rng.choice(population, p=self.weights) for _ in range(self.batch_size)]  # guilty


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class FraudNet(nn.Module):
    def __init__(self, width=256, depth=4):
        super().__init__()
        self.merchant = nn.Embedding(MERCHANTS, 32)
        self.inp = nn.Linear(NUMERIC + 32, width)
        self.body = nn.Sequential(*[Residual(width) for _ in range(depth)])
        self.out = nn.Linear(width, 1)

    def forward(self, merchant, numeric):
        x = self.inp(torch.cat([numeric, self.merchant(merchant)], 1))
        return self.out(self.body(x)).squeeze(1)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=500)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=128)
    args = cli.parse_args()
    torch.manual_seed(4)
    payments = Payments(14_000, 3)
    sampler = RarityBatchSampler(payments.merchant, args.batch_size, 150, 8, fixed=args.fixed)
    loader = DataLoader(payments, batch_sampler=sampler, collate_fn=to_tensors)
    model = FraudNet()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    seen, step, epoch = 0, 0, 0
    while step < args.steps:
        sampler.set_epoch(epoch)
        for merchant, numeric, label in loader:  # guilty
            logits = model(merchant, numeric)
            loss = F.binary_cross_entropy_with_logits(logits, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(label)
            step += 1
            if step % 75 == 0:
                hits = ((logits > 0) == (label > 0.5)).float().mean().item()
                print(f"epoch {epoch} step {step} seen {seen} loss {loss.item():.4f} acc {hits:.3f}")
            if step == args.steps:
                break
        epoch += 1


if __name__ == "__main__":
    main()
