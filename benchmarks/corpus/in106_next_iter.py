"""`next(iter(DataLoader(...)))` for every step.

expects: IN106, IN105
needs: either
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()

torch.manual_seed(3)
torch.set_num_threads(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(2000, 64, 8), torch.randint(0, 6, (2000,)))
model = nn.TransformerEncoderLayer(8, 2, 256, batch_first=True).to(device)
head = nn.Linear(8, 6).to(device)
optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()])


def batch_of(size):
    loader = DataLoader(data, batch_size=size, shuffle=True, num_workers=1)  # guilty
    return next(iter(loader))  # guilty


def endless(size):
    sampler = RandomSampler(data, replacement=True, num_samples=1 << 24)
    yield from DataLoader(data, batch_size=size, sampler=sampler, num_workers=1)


batches = endless(24) if args.fixed else None
for _ in range(args.steps):
    x, y = next(batches) if args.fixed else batch_of(24)
    loss = nn.functional.cross_entropy(head(model(x.to(device)).mean(1)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
