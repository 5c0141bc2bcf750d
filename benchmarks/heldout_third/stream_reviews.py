"""Star ratings from reviews that stream out of compressed shards.

expects: IN101
needs: cpu
"""

# mypy: ignore-errors
import argparse
import itertools
import json
import random
import re
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

WORD = re.compile(r"[a-z']+|[.!?]")
BUCKETS = 8192


def write_shards(count, lines):
    rng = random.Random(3)
    words = ["".join(rng.choices("abcdefghijklmnoprstuvw", k=rng.randint(2, 9))) for _ in range(3000)]
    shards = []
    for _ in range(count):
        rows = []
        for _ in range(lines):
            stars = rng.randint(1, 5)
            text = " ".join(rng.choices(words[stars * 200 :], k=90))
            rows.append(json.dumps({"stars": stars, "text": text.capitalize() + "!", "id": rng.getrandbits(40)}))
        shards.append(zlib.compress("\n".join(rows).encode()))
    return shards


class Reviews(IterableDataset):
    def __init__(self, shards, length=96):
        self.shards, self.length = shards, length

    def encode(self, text):
        tokens = WORD.findall(text.lower())  # guilty
        grams = itertools.chain(tokens, map("_".join, itertools.pairwise(tokens)))  # guilty
        ids = [zlib.crc32(g.encode()) % BUCKETS for g in grams][: 2 * self.length]  # guilty
        return ids + [0] * (2 * self.length - len(ids))

    def __iter__(self):
        while True:
            for shard in self.shards:
                for row in zlib.decompress(shard).decode().splitlines():
                    record = json.loads(row)  # guilty
                    yield torch.tensor(self.encode(record["text"])), record["stars"] - 1  # guilty


class Rater(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(BUCKETS, dim)
        self.conv = nn.Conv1d(dim, 64, 3, padding=1)
        self.out = nn.Linear(64, 5)

    def forward(self, ids):
        z = self.conv(self.embed(ids).transpose(1, 2)).relu()
        return self.out(z.amax(-1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=220)
    ap.add_argument("--fixed", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    workers = 1 if args.fixed else 0
    loader = DataLoader(Reviews(write_shards(4, 500)), batch_size=64, num_workers=workers)  # guilty
    model = Rater()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    mean = None
    for step, (ids, stars) in enumerate(itertools.islice(loader, args.steps)):  # guilty
        loss = nn.functional.cross_entropy(model(ids), stars)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
        if step % 50 == 0:
            print(f"{step}\t{mean:.4f}")


if __name__ == "__main__":
    main()
