"""Click-through prediction on a stream of impression logs, with hashed features and a cross network.

expects: IN109, HO411
needs: cpu
"""

# mypy: ignore-errors
import argparse
import random
import zlib
from itertools import combinations

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

SLOTS = 1 << 14
FIELDS = ["device", "region", "site", "category", "advertiser", "campaign", "hour", "slot", "weekday", "referrer"]
SIZES = [6, 80, 900, 40, 500, 2500, 24, 5, 7, 700]


class Impressions(IterableDataset):
    """Log lines as they leave the ad server: `click<TAB>field=value;field=value;...|recent ads`."""

    def __init__(self, batch, seed):
        self.batch, self.seed = batch, seed

    def line(self, rng):
        values = [int(size * rng.random() ** 2) for size in SIZES]
        pull = (values[3] % 5 == values[0] % 5) + (values[5] % 7 == 0) - 0.5 * (values[7] > 2)
        click = rng.random() < 0.15 + 0.25 * max(pull, 0)
        pairs = ";".join(f"{name}={value}" for name, value in zip(FIELDS, values, strict=True))
        recent = ",".join(str(int(2500 * rng.random() ** 2)) for _ in range(10))
        return f"{int(click)}\t{pairs}|{recent}"

    def __iter__(self):
        rng = random.Random(self.seed)
        pool = [self.line(rng) for _ in range(4000)]
        while True:
            yield rng.choices(pool, k=self.batch)


def hashed(text):
    return zlib.crc32(text.encode()) % SLOTS


def featurize(lines):
    """Hashed fields, hashed crosses of all pairs, hashed recent ads, and the click."""
    rows, clicks = [], []
    for line in lines:
        click, rest = line.split("\t")
        pairs, recent = rest.split("|")
        fields = pairs.split(";")
        row = [hashed(field) for field in fields]
        row += [hashed(a + "&" + b) for a, b in combinations(fields, 2)]
        row += [hashed("recent=" + ad) for ad in recent.split(",")]
        rows.append(row)
        clicks.append(float(click))
    return torch.tensor(rows), torch.tensor(clicks)


class CrossNet(nn.Module):
    def __init__(self, size, layers):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(size, size) for _ in range(layers)])

    def forward(self, x0):
        x = x0
        for layer in self.layers:
            x = x0 * layer(x) + x
        return x


class ClickModel(nn.Module):
    def __init__(self, dim=4, width=160):
        super().__init__()
        self.embed = nn.Embedding(SLOTS, dim)
        nn.init.normal_(self.embed.weight, std=0.05)
        size = dim * (len(FIELDS) * (len(FIELDS) + 1) // 2 + 10)
        self.cross = CrossNet(size, 2)
        self.deep = nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.out = nn.Linear(size + width, 1)

    def forward(self, rows):
        x = self.embed(rows).flatten(1)
        return self.out(torch.cat([self.cross(x), self.deep(x)], -1)).squeeze(-1)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=400)
    cli.add_argument("--batch", type=int, default=512)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    collate = featurize if args.fixed else None
    loader = DataLoader(Impressions(args.batch, 1), batch_size=None, num_workers=1, collate_fn=collate)
    model = ClickModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    mean = 0.0
    for step, batch in enumerate(loader, 1):
        rows, clicks = batch if args.fixed else featurize(batch)  # guilty
        loss = F.binary_cross_entropy_with_logits(model(rows), clicks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean += 0.02 * (loss.item() - mean)
        if step % 100 == 0:
            print(f"step {step} loss {mean:.4f}")
        if step == args.steps:
            break


if __name__ == "__main__":
    main()
