"""House prices from tables: embeddings for the categories, a residual net with batch norm, k folds in turn.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import csv
import io

import numpy as np
import torch
from torch import nn

CATEGORIES = {"district": 40, "heating": 6, "style": 12}
NUMBERS = ["area", "rooms", "age", "lat", "lon", "tax"]


def write_table(rows):
    rng = np.random.default_rng(3)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([*CATEGORIES, *NUMBERS, "price"])
    cats = np.stack([rng.integers(0, k, rows) for k in CATEGORIES.values()], 1)
    nums = rng.normal(size=(rows, len(NUMBERS)))
    price = nums[:, 0] * 2 + np.sin(cats[:, 0]) + 0.3 * nums[:, 1] * cats[:, 1] + rng.normal(0, 0.1, rows)
    for c, n, p in zip(cats, nums, price, strict=True):
        writer.writerow([*c.tolist(), *np.round(n, 4).tolist(), round(float(p), 4)])
    return out.getvalue()


def read_table(text):
    rows = np.loadtxt(io.StringIO(text), delimiter=",", skiprows=1)
    k = len(CATEGORIES)
    x = rows[:, k:-1]
    x = (x - x.mean(0)) / x.std(0)
    y = (rows[:, -1] - rows[:, -1].mean()) / rows[:, -1].std()
    return torch.from_numpy(rows[:, :k]).long(), torch.from_numpy(x), torch.from_numpy(y)


class TabularNet(nn.Module):
    def __init__(self, width=384, depth=4):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(k, 16) for k in CATEGORIES.values())
        self.inp = nn.Linear(16 * len(CATEGORIES) + len(NUMBERS), width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1))
            for _ in range(depth)
        )
        self.out = nn.Linear(width, 1)

    def forward(self, cats, nums):
        parts = [table(cats[:, i]) for i, table in enumerate(self.tables)]
        x = self.inp(torch.cat([*parts, nums], 1))
        for block in self.blocks:
            x = x + block(x)  # guilty
        return self.out(x).squeeze(1)


def folds(n, k, seed=0):
    order = np.random.default_rng(seed).permutation(n)
    for part in np.array_split(order, k):
        mask = np.ones(n, bool)
        mask[part] = False
        yield torch.from_numpy(np.flatnonzero(mask)), torch.from_numpy(part)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--folds", type=int, default=4)
    ap.add_argument("--batch-size", type=int, default=256)
    args = ap.parse_args()
    torch.manual_seed(0)
    cats, nums, price = read_table(write_table(8000))
    if args.fixed:
        nums, price = nums.float(), price.float()
    per_fold = args.steps // args.folds
    for fold, (train, held) in enumerate(folds(len(price), args.folds)):
        model = TabularNet()
        if not args.fixed:
            model = model.double()  # guilty
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        for step in range(per_fold):
            if step * args.batch_size % len(train) < args.batch_size:
                train = train[torch.randperm(len(train))]
            lo = step * args.batch_size % (len(train) - args.batch_size)
            idx = train[lo : lo + args.batch_size]
            loss = nn.functional.mse_loss(model(cats[idx], nums[idx]), price[idx])  # guilty
            optimizer.zero_grad()
            loss.backward()  # guilty
            optimizer.step()
        model.eval()
        with torch.no_grad():
            rmse = (model(cats[held], nums[held]) - price[held]).pow(2).mean().sqrt()
        print(f"fold {fold} train {loss.item():.4f} rmse {rmse:.4f}")


if __name__ == "__main__":
    main()
