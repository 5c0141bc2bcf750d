"""A training step captured in a CUDA graph and replayed; argv[1] says how.

`whole`: with a loader; `loaderless`: without; `callables`: the model alone, by make_graphed_callables.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model: Any = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
rows = torch.randn(40 * 16, 64)
loader = DataLoader(TensorDataset(rows), batch_size=16)
losses = []
if sys.argv[1] == "callables":
    model = torch.cuda.make_graphed_callables(model, (torch.randn(16, 64, device="cuda"),))
    for (x,) in loader:
        loss = model(x.cuda()).square().mean()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())
    steps = 40
else:
    static = torch.zeros(16, 64, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            model(static).square().mean().backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        static_loss = model(static).square().mean()
        static_loss.backward()
        optimizer.step()
    batches = [(x,) for x in rows.split(16)] if sys.argv[1] == "loaderless" else loader
    for (x,) in batches:
        static.copy_(x)
        graph.replay()
        losses.append(static_loss.clone())
    steps = 43
print("LOSSES " + json.dumps(torch.stack(losses).flatten().tolist()))
print("TRUTH " + json.dumps({"steps": steps}))
