"""One loop, many shapes of a batch, one after the other."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth

Pair = namedtuple("Pair", "x y")


@dataclass
class Record:
    ids: list[str]
    x: torch.Tensor


@dataclass(slots=True)
class Slotted:
    x: torch.Tensor


class Custom:
    def __init__(self, x: torch.Tensor) -> None:
        self.scale = 2.0
        self.x = x


def encoded(x: torch.Tensor) -> Any:
    from transformers import BatchEncoding

    return BatchEncoding({"input_ids": torch.zeros(len(x), 5, dtype=torch.long), "x": x})


SHAPES: dict[str, tuple[Any, Any]] = {
    "tensor": (lambda x: x, lambda b: b),
    "dict": (lambda x: {"epoch": torch.tensor(3), "x": x, "y": x[:, 0]}, lambda b: b["x"]),
    "tuple": (lambda x: (x, x[:, 0]), lambda b: b[0]),
    "namedtuple": (lambda x: Pair(x, x[:, 0]), lambda b: b.x),
    "nested": (lambda x: {"meta": {"name": "a"}, "views": [(x, x), {"aux": x}]}, lambda b: b["views"][0][0]),
    "strings": (lambda x: (["caption"] * len(x), {"image": x}), lambda b: b[1]["image"]),
    "dataclass": (lambda x: Record([str(i) for i in range(len(x))], x), lambda b: b.x),
    "slots": (lambda x: Slotted(x), lambda b: b.x),
    "custom": (lambda x: Custom(x), lambda b: b.x),
    "encoding": (encoded, lambda b: b["x"]),
}

torch.manual_seed(0)
torch.set_num_threads(1)
dataset = TensorDataset(torch.randn(52, 8))
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
truth = Truth()
for shape, unshape in SHAPES.values():
    loader = DataLoader(dataset, 8, collate_fn=lambda rows, shape=shape: shape(torch.stack([x for (x,) in rows])))
    for batch in loader:
        x = unshape(batch)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        truth.step(len(x))
truth.tell(shapes=list(SHAPES))
