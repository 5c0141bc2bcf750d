"""Training with an evaluation every four steps, written in one of the usual styles; argv[1] says which."""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Dropout(0.1), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
train = DataLoader(TensorDataset(torch.randn(48 * 32, 512), torch.randint(0, 10, (48 * 32,))), batch_size=32)
held_out = DataLoader(TensorDataset(torch.randn(10 * 128, 512), torch.randint(0, 10, (10 * 128,))), batch_size=128)
truth = Truth()


def around() -> int:
    hits = 0
    model.eval()
    with torch.no_grad():
        for x, y in held_out:
            hits += int((model(x).argmax(1) == y).sum())
    model.train()
    return hits


@torch.no_grad()
def decorated() -> int:
    model.eval()
    hits = 0
    for x, y in held_out:
        hits += int((model(x).argmax(1) == y).sum())
    model.train()
    return hits


def inside() -> int:
    hits = 0
    model.eval()
    for x, y in held_out:
        with torch.no_grad():
            hits += int((model(x).argmax(1) == y).sum())
    model.train()
    return hits


@torch.inference_mode()
def inference() -> int:
    hits = 0
    for x, y in held_out:
        hits += int((model(x).argmax(1) == y).sum())
    return hits


evaluate = {"around": around, "decorated": decorated, "inside": inside, "inference": inference}[sys.argv[1]]
for step, (x, y) in enumerate(train):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    truth.step(len(x))
    if step % 4 == 3:
        with truth.planted():
            evaluate()
truth.tell()
