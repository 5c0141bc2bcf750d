"""Ads ranking with a cross network: each feature of a row has its own tensor on its way to the device.

expects: TR202
needs: gpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CATEGORICAL, DENSE = 48, 24


class Impressions:
    """Rows of named features, a dict of small arrays to a batch."""

    def __init__(self, rows, buckets, seed=0):
        rng = np.random.default_rng(seed)
        self.cat = rng.integers(0, buckets, (CATEGORICAL, rows))
        self.num = rng.normal(size=(DENSE, rows)).astype(np.float32)
        self.click = (rng.random(rows) < 0.1).astype(np.float32)
        self.rng, self.rows = rng, rows

    def batch(self, size, chunks):
        out = []
        for _ in range(chunks):
            lo = int(self.rng.integers(0, self.rows - size // chunks))
            hi = lo + size // chunks
            row = {f"cat_{i}": torch.from_numpy(self.cat[i, lo:hi]) for i in range(CATEGORICAL)}
            row |= {f"num_{i}": torch.from_numpy(self.num[i, lo:hi]) for i in range(DENSE)}
            out.append((row, torch.from_numpy(self.click[lo:hi])))
        return out


def to_device(shards, device):
    moved = []
    for row, click in shards:
        row = {name: value.to(device) for name, value in row.items()}  # guilty
        moved.append((row, click.to(device)))  # guilty
    cat = torch.cat([torch.stack([r[f"cat_{i}"] for i in range(CATEGORICAL)], 1) for r, _ in moved])
    num = torch.cat([torch.stack([r[f"num_{i}"] for i in range(DENSE)], 1) for r, _ in moved])
    return cat, num, torch.cat([c for _, c in moved])


def to_device_packed(shards, device):
    cat = torch.cat([torch.stack([r[f"cat_{i}"] for i in range(CATEGORICAL)], 1) for r, _ in shards])
    num = torch.cat([torch.stack([r[f"num_{i}"] for i in range(DENSE)], 1) for r, _ in shards])
    click = torch.cat([c for _, c in shards])
    if device.type == "cuda":
        cat, num, click = cat.pin_memory(), num.pin_memory(), click.pin_memory()
    return tuple(v.to(device, non_blocking=True) for v in (cat, num, click))


class CrossNet(nn.Module):
    def __init__(self, buckets, dim, width, depth):
        super().__init__()
        self.table = nn.Embedding(buckets, dim)
        wide = CATEGORICAL * dim + DENSE
        self.cross = nn.ModuleList(nn.Linear(wide, wide) for _ in range(depth))
        self.deep = nn.Sequential(nn.Linear(wide, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.out = nn.Linear(wide + width, 1)

    def forward(self, cat, num):
        x0 = torch.cat([self.table(cat).flatten(1), num], 1)
        x = x0
        for layer in self.cross:
            x = x0 * layer(x) + x
        return self.out(torch.cat([x, self.deep(x0)], 1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    device, cuda = torch.device(args.device), args.device != "cpu"
    buckets, dim, width, batch = (50_000, 32, 2048, 16384) if cuda else (100, 4, 16, 32)
    data = Impressions(400_000 if cuda else 1000, buckets)
    model = CrossNet(buckets, dim, width, 3).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=cuda)
    move = to_device_packed if args.fixed else to_device
    for step in range(1, args.steps + 1):
        cat, num, click = move(data.batch(batch, 16), device)  # guilty
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(cat, num)
        loss = F.binary_cross_entropy_with_logits(logits.float(), click)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 60 == 0:
            print(f"step {step} bce {loss.item():.4f}")


if __name__ == "__main__":
    main()
