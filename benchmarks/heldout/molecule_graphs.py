"""Solubility of molecules: graph convolutions over dense, padded adjacency.

expects: IN107
needs: cpu
"""

# mypy: ignore-errors
import argparse
import random
from functools import partial

import torch
from torch import nn
from torch.utils.data import DataLoader

KINDS = 12
LARGEST = 60


def random_molecule(rng):
    """Atoms, bonds as pairs, and a target that depends on both."""
    size = rng.randint(30, LARGEST)
    atoms = [rng.randrange(KINDS) for _ in range(size)]
    bonds = [(i, rng.randrange(i)) for i in range(1, size)]
    bonds += [tuple(rng.sample(range(size), 2)) for _ in range(size // 2)]
    return atoms, bonds, sum(atoms) / size + 0.1 * len(bonds)


def collate_by_bond(molecules):
    adjacency = torch.zeros(len(molecules), LARGEST, LARGEST)
    features = torch.zeros(len(molecules), LARGEST, KINDS)
    for row, (atoms, bonds, _) in enumerate(molecules):
        for place, atom in enumerate(atoms):
            features[row, place, atom] = 1.0
        for a, b in bonds:
            adjacency[row, a, b] = 1.0  # guilty
            adjacency[row, b, a] = 1.0  # guilty
    return features, adjacency, torch.tensor([target for _, _, target in molecules])


def collate_at_once(molecules):
    adjacency = torch.zeros(len(molecules), LARGEST, LARGEST)
    features = torch.zeros(len(molecules), LARGEST, KINDS)
    places = torch.tensor([(r, i, a) for r, (atoms, _, _) in enumerate(molecules) for i, a in enumerate(atoms)])
    pairs = torch.tensor([(r, a, b) for r, (_, bonds, _) in enumerate(molecules) for a, b in bonds])
    features[places[:, 0], places[:, 1], places[:, 2]] = 1.0
    adjacency[pairs[:, 0], pairs[:, 1], pairs[:, 2]] = 1.0
    adjacency[pairs[:, 0], pairs[:, 2], pairs[:, 1]] = 1.0
    return features, adjacency, torch.tensor([target for _, _, target in molecules])


class GraphNet(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.first = nn.Linear(KINDS, hidden)
        self.rounds = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(3))
        self.read = nn.Linear(hidden, 1)

    def forward(self, features, adjacency):
        degree = adjacency.sum(2, keepdim=True).clamp(min=1)
        x = self.first(features)
        for layer in self.rounds:
            x = torch.relu(layer(adjacency @ x / degree)) + x
        return self.read(x.sum(1)).squeeze(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    rng = random.Random(2)
    torch.manual_seed(2)
    torch.set_num_threads(1)
    molecules = [random_molecule(rng) for _ in range(640)]
    make_loader = partial(DataLoader, molecules, batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
    loader = make_loader(collate_fn=collate_at_once if options.fixed else collate_by_bond)  # guilty
    net = GraphNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(options.epochs):
        for features, adjacency, targets in loader:
            loss = nn.functional.smooth_l1_loss(net(features, adjacency), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.3f}")
