"""Steps far below a millisecond, thousands of them, with an evaluation and a pause after every epoch."""

from __future__ import annotations

import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCHES, SIZE = 8, 500, 4
torch.manual_seed(0)
torch.set_num_threads(1)
rows = TensorDataset(torch.randn(BATCHES * SIZE, 8))
training = DataLoader(rows, batch_size=SIZE)
validation = DataLoader(TensorDataset(torch.randn(40, 8)), batch_size=4)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
evaluating_s = pausing_s = 0.0
begun = time.perf_counter()
for _ in range(EPOCHS):
    for (x,) in training:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    before = time.perf_counter()
    with torch.no_grad():
        for (x,) in validation:
            model(x)
            time.sleep(0.005)
    between = time.perf_counter()
    time.sleep(0.05)
    evaluating_s += between - before
    pausing_s += time.perf_counter() - between
whole_s = time.perf_counter() - begun
truth = {"steps": EPOCHS * BATCHES, "samples": EPOCHS * BATCHES * SIZE, "whole_s": whole_s}
print("TRUTH " + json.dumps({**truth, "evaluating_s": evaluating_s, "pausing_s": pausing_s}))
