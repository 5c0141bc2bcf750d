"""A batch sent in pieces: many small copies from one line, and one from another that waits for the step before."""

from __future__ import annotations

import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

PIECES, STEPS = 200, 60


class Lists:
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        return [torch.full((4,), float(index)) for _ in range(PIECES)]


model = nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scales = torch.ones(PIECES, 4)
copying_s, steps = 0.0, 0
for pieces in DataLoader(Lists(), batch_size=None):  # type: ignore[arg-type]
    scale = scales.to("cuda")  # SITE scale
    begun = time.perf_counter()
    moved = [piece.to("cuda") for piece in pieces]  # SITE pieces
    copying_s += time.perf_counter() - begun
    loss = (model(torch.stack(moved)) * scale).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print("TRUTH " + json.dumps({"steps": steps, "copying_ms": 1e3 * copying_s / steps}))
