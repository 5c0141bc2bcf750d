"""Trains a small network, by the first word.

"wide" in float64, "narrow" in float32 with only its loss in float64; "dense" with a large table of which a batch picks
a few rows, "sparse" the same with sparse gradients; "masked" with a loss that reads an eighth of the results, "read"
with one that reads them all; "graph" with an adjacency that is nearly empty; "fading" with an input of which a
sixteenth is nearly zero; "picked" with a loop that picks each of 100 parts of a result, "unbound" with one that takes
it apart at once; "pairs" with distances of every row from every other, formed one by one; "spread" with products of one
matrix that is expanded over the batch, "several" with a matrix for each; "chain" with a product of large matrices that
is multiplied with a thin one. The second word is the device.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

KIND = sys.argv[1]
DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cpu"
ROWS, PICKED = 50_000, 64


class Picking(nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, 32, sparse=sparse)  # TABLE
        self.head = nn.Linear(32, 512)

    def forward(self, rows: torch.Tensor) -> Any:
        return self.head(self.table(rows))


class Convolving(nn.Module):
    def __init__(self, nodes: int) -> None:
        super().__init__()
        adjacency = torch.zeros(nodes, nodes)
        adjacency[torch.arange(nodes), torch.arange(nodes).roll(1)] = 1.0
        self.register_buffer("adjacency", adjacency)
        self.layer = nn.Linear(64, 64)

    def forward(self, nodes: torch.Tensor) -> Any:
        nodes = self.layer(nodes)
        return self.adjacency @ nodes  # GRAPH


class Looping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 512)

    def forward(self, rows: torch.Tensor) -> Any:
        whole = self.layer(rows)
        parts = whole.unbind(1) if KIND == "unbound" else (whole[:, t] for t in range(rows.shape[1]))  # PICKS
        state = torch.zeros(1)
        for part in parts:
            state = 0.9 * state + part.tanh()
        return state


class Pairing(nn.Module):
    """The distances of codes from each other and from those of old."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(512, 64)
        self.register_buffer("old", torch.randn(400, 64))

    def forward(self, rows: torch.Tensor) -> Any:
        return (self.layer(rows)[:, None] - self.old).pow(2).sum(2)  # PAIRS


class Mixing(nn.Module):
    """Mixes the values of each row by the matrix of all, or by one of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(512, 64)
        self.mixer = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, rows: torch.Tensor) -> Any:
        rows = self.layer(rows)
        mixers = self.mixer * rows[:, :1, None] if KIND == "several" else self.mixer.expand(len(rows), -1, -1)
        return torch.bmm(mixers, rows[:, :, None])  # MIX


class Linking(nn.Module):
    """Moves a state along two links."""

    def __init__(self) -> None:
        super().__init__()
        self.links = nn.Parameter(torch.randn(400, 400) / 20)

    def forward(self, state: torch.Tensor) -> Any:
        return self.links @ self.links @ state  # CHAIN


def make() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The model, its input and its target."""
    inputs = torch.randn(256, 512)
    if KIND in ("dense", "sparse"):
        return Picking(KIND == "sparse"), torch.randint(0, ROWS, (PICKED,)), inputs[:PICKED]
    if KIND == "graph":
        inputs = torch.randn(1500, 64)
        return Convolving(1500), inputs, inputs
    if KIND in ("picked", "unbound"):
        return Looping(), torch.randn(4, 100, 16), inputs[:4]
    if KIND == "pairs":
        return Pairing(), inputs[:64], torch.zeros(64, 400)
    if KIND in ("spread", "several"):
        return Mixing(), inputs, torch.zeros(256, 64, 1)
    if KIND == "chain":
        return Linking(), torch.randn(400, 16), torch.zeros(400, 16)
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))
    if KIND == "wide":
        model = model.double()  # WIDE
        inputs = inputs.to(torch.float64)
    if KIND == "fading":
        return model, torch.cat([inputs[:, 32:], inputs[:, :32] * 1e-40], 1), inputs
    return model, inputs, inputs


def loss_of(made: torch.Tensor, target: torch.Tensor) -> Any:
    labels = torch.arange(len(made), device=made.device)
    if KIND == "masked":
        labels[len(made) // 8 :] = -100
    if KIND in ("masked", "read"):
        return nn.functional.cross_entropy(made, labels, ignore_index=-100)
    return (made - target).pow(2).mean().double()


torch.manual_seed(0)
model, inputs, target = (part.to(DEVICE) for part in make())
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
for _ in range(100):
    optimizer.zero_grad()
    made = model(inputs)  # MODEL
    loss = loss_of(made, target)
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
