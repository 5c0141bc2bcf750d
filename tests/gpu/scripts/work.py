"""Models whose GPU is busy, and what torch's own counter says of a step's arithmetic."""

from __future__ import annotations

import gc
import json
import sys
import time
from contextlib import nullcontext

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

MODE = sys.argv[1]
STEPS = 400
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, by_hand: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.all, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.heads, self.by_hand = heads, by_hand

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.all(self.norms[0](x)).split(width, 2)
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        if self.by_hand:
            scores = query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5
            mixed = nn.functional.dropout(scores.softmax(-1), 0.1) @ value
        else:
            mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.wide(self.norms[1](x))


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.layers(x))


if MODE == "images":
    first = nn.Conv2d(3, 64, 3, padding=1)
    model: nn.Module = nn.Sequential(first, *(Residual(64) for _ in range(4)), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    batch = torch.randn(64, 3, 56, 56, device="cuda")
else:
    model = nn.Sequential(*(Block(512, 8, MODE == "by hand") for _ in range(6)))
    batch = torch.randn(8, 512, 512, device="cuda")
model.cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
precision = torch.autocast("cuda", dtype=torch.bfloat16) if MODE == "half" else nullcontext()


def step() -> None:
    with precision:
        loss = model(batch).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


with FlopCounterMode(display=False) as counter:
    step()
torch.cuda.synchronize()
begun = time.perf_counter()
for _ in range(STEPS):
    step()
torch.cuda.synchronize()
truth = {"flops": counter.get_total_flops(), "step_ms": 1e3 * (time.perf_counter() - begun) / STEPS}
print("TRUTH", json.dumps(truth))
gc.freeze()
