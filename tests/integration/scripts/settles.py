"""A compiled model that is compiled again in the middle of the run; prints the rate of the steps that did not compile.

argv[1] is the backend: one of torch's, or "sleepy", which takes a while as a real one does. argv[2] is the device.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

COMPILES_S = 0.7


def sleepy(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    time.sleep(COMPILES_S)
    return graph.forward


torch.manual_seed(0)
torch.set_num_threads(1)
backend: Any = sleepy if sys.argv[1] == "sleepy" else sys.argv[1]
device = sys.argv[2]
model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10)).to(device)
compiled: Any = torch.compile(model, dynamic=False, backend=backend)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
# Made before: random numbers would be a tenth of a step, which is worth a finding.
batch = torch.randn(64, 256, device=device)
walls: list[float] = []
for step in range(300):
    begun = time.perf_counter()
    optimizer.zero_grad()
    # As the last batch of an epoch, which is smaller.
    loss = compiled(batch[: 48 if step == 150 else 64]).square().mean()
    loss.backward()
    optimizer.step()
    walls.append(time.perf_counter() - begun)
steady = [*walls[2:150], *walls[151:]]
print("TRUTH " + json.dumps({"step_s": sum(steady) / len(steady)}), flush=True)
