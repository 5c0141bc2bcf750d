"""A cache in the dataset, and workers that are started anew every epoch: it is empty each time.

expects: ME709
needs: cpu
"""
# mypy: ignore-errors

import argparse
import json
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COUNT, WIDTH = 400, 700


def documents():
    source = np.random.default_rng(0)
    rows = ({"values": source.random(WIDTH).round(6).tolist(), "label": i % 5} for i in range(COUNT))
    return [zlib.compress(json.dumps(row).encode()) for row in rows]


class Documents(Dataset):
    def __init__(self, texts):
        self.texts = texts
        self.cache = {}

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        if i not in self.cache:
            row = json.loads(zlib.decompress(self.texts[i]))
            values = torch.tensor(sorted(row["values"]))
            for order in range(2, 6):
                values = values + torch.tensor([value**order for value in row["values"]])
            self.cache[i] = values, row["label"]
        return self.cache[i]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(  # guilty
        Documents(documents()), batch_size=10, shuffle=True, num_workers=1, persistent_workers=args.fixed
    )
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 5))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for _ in range(args.steps * 10 // COUNT):
        for values, label in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(values), label).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
