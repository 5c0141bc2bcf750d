"""torch.compile on the device; argv[1] is the mode. Prints what dynamo and inductor counted."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch._dynamo.utils as dynamo_utils
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 4)).cuda()
compiled: Any = torch.compile(model, mode=sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(100, 64)), batch_size=16, pin_memory=True)


@torch.compile
def loss_of(out: torch.Tensor) -> torch.Tensor:
    loss = out.square().mean()
    if loss.item() > 1e9:
        return loss * 2
    return loss


losses = []
for _epoch in range(3):
    for (x,) in loader:
        torch.compiler.cudagraph_mark_step_begin()
        out = compiled(x.to("cuda", non_blocking=True))
        loss = loss_of(out)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        for (x,) in loader:
            torch.compiler.cudagraph_mark_step_begin()
            losses.append(float(compiled(x.cuda()).sum()))
    model.train()
print("LOSSES " + json.dumps(losses))
counters = {
    group: {str(k).split("\n")[0]: v for k, v in dynamo_utils.counters[group].items()}
    for group in ("stats", "graph_break", "recompiles")
}
counters["inductor"] = {
    k: v for k, v in dynamo_utils.counters["inductor"].items() if "cache" not in k and k.startswith("cudagraph")
}
print("COUNTERS " + json.dumps(counters, sort_keys=True))
print('TRUTH {"steps": 21}')
