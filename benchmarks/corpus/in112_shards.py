"""Opening a shard takes long now and then, and only one batch is fetched ahead.

expects: IN112
needs: cpu
"""
# mypy: ignore-errors

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

PER_SHARD = 12


class Shards(IterableDataset):
    """Ready batches from shards; a shard is fetched from afar when its first batch is wanted."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        generator = torch.Generator().manual_seed(0)
        for number in range(self.batches):
            if number % PER_SHARD == 0:
                time.sleep(0.22)
                shard = torch.randn(PER_SHARD, 48, 256, generator=generator)
            yield shard[number % PER_SHARD], torch.arange(48) % 4


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=168)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
ahead = 2 * PER_SHARD if args.fixed else 1
loader = DataLoader(Shards(args.steps), batch_size=None, num_workers=1, prefetch_factor=ahead)  # guilty
model = nn.Sequential(
    nn.Linear(256, 800), nn.ReLU(), nn.Linear(800, 800), nn.ReLU(), nn.Linear(800, 800), nn.ReLU(), nn.Linear(800, 4)
)
optimizer = torch.optim.Adam(model.parameters(), 1e-4)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
