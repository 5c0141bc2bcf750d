"""Solubility of molecules from their graphs, streamed from an iterable and put together as dense adjacency.

expects: IN107
needs: cpu
"""

# mypy: ignore-errors

import argparse
import functools
import itertools

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

KINDS = 9


class Molecules(IterableDataset):
    def __init__(self, seed: int = 2, atoms: int = 28):
        self.seed, self.atoms = seed, atoms

    def __iter__(self):
        rng = np.random.default_rng(self.seed)
        while True:
            count = int(rng.integers(12, self.atoms + 1))
            bonds = rng.integers(0, count, (3 * count, 2))
            yield rng.integers(0, KINDS, count), bonds, float(count / self.atoms)


def collate_by_hand(items, size):
    nodes = torch.zeros(len(items), size, KINDS)
    adjacency = torch.zeros(len(items), size, size)
    for row, (kinds, bonds, _) in enumerate(items):
        for atom, kind in enumerate(kinds):
            nodes[row, atom, int(kind)] = 1.0  # guilty
        for a, b in bonds:
            adjacency[row, a, b] = 1.0  # guilty
            adjacency[row, b, a] = 1.0  # guilty
    return nodes, adjacency, torch.tensor([item[2] for item in items])


def collate_at_once(items, size):
    nodes = np.zeros((len(items), size, KINDS), np.float32)
    adjacency = np.zeros((len(items), size, size), np.float32)
    for row, (kinds, bonds, _) in enumerate(items):
        nodes[row, np.arange(len(kinds)), kinds] = 1
        adjacency[row, bonds[:, 0], bonds[:, 1]] = 1
        adjacency[row, bonds[:, 1], bonds[:, 0]] = 1
    return torch.from_numpy(nodes), torch.from_numpy(adjacency), torch.tensor([item[2] for item in items])


class GraphNet(nn.Module):
    def __init__(self, width: int = 112, depth: int = 3):
        super().__init__()
        self.enter = nn.Linear(KINDS, width)
        self.layers = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth))
        self.leave = nn.Linear(width, 1)

    def forward(self, nodes, adjacency):
        hidden = self.enter(nodes)
        degree = adjacency.sum(-1, keepdim=True).clamp(min=1)
        for layer in self.layers:
            hidden = torch.relu(layer(torch.cat([hidden, adjacency @ hidden / degree], -1)))
        return self.leave(hidden.mean(1)).squeeze(-1)


def run(steps: int, fixed: bool) -> None:
    collate = functools.partial(collate_at_once if fixed else collate_by_hand, size=28)
    loader = DataLoader(Molecules(), batch_size=16, num_workers=1, collate_fn=collate)  # guilty
    model = GraphNet()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step, (nodes, adjacency, target) in enumerate(itertools.islice(loader, steps), 1):
        loss = nn.functional.mse_loss(model(nodes, adjacency), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"{step:5d} {loss.item():.5f}")


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=190)
    cli.add_argument("--fixed", action="store_true")
    known = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    run(known.steps, known.fixed)
