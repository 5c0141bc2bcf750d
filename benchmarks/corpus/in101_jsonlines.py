"""An iterable dataset that parses JSON records.

expects: IN101
needs: either
"""
# mypy: ignore-errors

import argparse
import itertools
import json
import os

import torch
from making import json_lines
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Records(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        info = get_worker_info()
        first, every = (info.id, info.num_workers) if info else (0, 1)
        while True:
            with open(self.path) as lines:
                for line in itertools.islice(lines, first, None, every):
                    record = json.loads(line)
                    yield torch.tensor(record["values"]), record["label"]


def run(steps, fixed):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    path = json_lines("records.jsonl", 600, 400)
    workers = min(4, len(os.sched_getaffinity(0)) - 1) if fixed else 0
    loader = DataLoader(Records(path), batch_size=64, num_workers=workers)  # guilty
    model = nn.Sequential(nn.Linear(400, 900), nn.GELU(), nn.Linear(900, 900), nn.GELU(), nn.Linear(900, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.0)
    for values, labels in itertools.islice(loader, steps):
        optimizer.zero_grad(set_to_none=True)
        out = model(values.to(device))
        nn.functional.cross_entropy(out, labels.to(device)).backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    run(options.steps, options.fixed)
