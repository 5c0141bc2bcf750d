"""torch.compile of model, train step and optimizer; prints what dynamo counted. argv[1] is the backend."""

from __future__ import annotations

import gc
import json
import sys
from typing import Any

import torch
import torch._dynamo.utils as dynamo_utils
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

backend = sys.argv[1]
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
compiled: Any = torch.compile(model, backend=backend)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
loader = DataLoader(TensorDataset(torch.randn(52, 8), torch.randint(0, 2, (52,))), batch_size=8)
losses: list[float] = []


@torch.compile(backend=backend)
def update() -> None:
    optimizer.step()


@torch.compile(backend=backend)
def loss_with_break(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = nn.functional.cross_entropy(logits, y)
    if loss.item() > 100:
        return loss * 2
    return loss


@torch.compile(backend=backend)
def accuracy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().cpu()


for _epoch in range(2):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_with_break(compiled(x), y)
        loss.backward()
        update()
        scheduler.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            losses.append(float(accuracy(x, y)))
            losses.append(compiled(x).sum().item())

print("LOSSES " + json.dumps(losses))
counters = {
    group: {str(k).split("\n")[0]: v for k, v in dynamo_utils.counters[group].items()}
    for group in ("stats", "graph_break", "recompiles", "unimplemented")
}
counters["compilations"] = {"count": len(dynamo_utils.get_compilation_metrics())}
print("COUNTERS " + json.dumps(counters, sort_keys=True), flush=True)
gc.freeze()  # see truth.py
