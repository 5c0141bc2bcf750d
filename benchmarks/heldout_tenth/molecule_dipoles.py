"""Predicts dipole moments of small molecules: relational graph network with many small weights, accumulated gradients.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

ATOMS, ELEMENTS, BONDS = 20, 6, 3


def molecules(count, seed):
    """Random trees of atoms with some rings; charges flow along bonds and make the moment."""
    rng = np.random.default_rng(seed)
    element = rng.integers(0, ELEMENTS, (count, ATOMS))
    pull = np.linspace(-1, 1, ELEMENTS)[element]
    bonds = np.zeros((count, BONDS, ATOMS, ATOMS), np.float32)
    each = np.arange(count)
    for atom in range(1, ATOMS):
        for _ in range(1 + (atom % 6 == 5)):
            other = (atom - 1 - np.minimum(rng.geometric(0.5, count) - 1, atom - 1)).clip(0)
            kind = rng.choice(BONDS, count, p=(0.7, 0.2, 0.1))
            bonds[each, kind, atom, other] = bonds[each, kind, other, atom] = 1
    strength = np.einsum("nkij,k->nij", bonds, (0.5, 0.9, 1.2))
    charge = (strength * (pull[:, :, None] - pull[:, None])).sum(2)
    charge += 0.5 * (strength @ charge[:, :, None])[:, :, 0]
    moment = np.stack([np.abs(charge).mean(1), charge.std(1), charge.max(1)], 1)
    moment = (moment - moment.mean(0)) / moment.std(0)
    bonds /= bonds.sum((1, 3), keepdims=True) ** 0.5
    return [torch.from_numpy(part) for part in (element, bonds, moment.astype(np.float32))]


class Layer(nn.Module):
    """One weight for each kind of bond, one for the atom itself, gated update."""

    def __init__(self, width):
        super().__init__()
        self.kinds = nn.ModuleList([nn.Linear(width, width, bias=False) for _ in range(BONDS)])
        self.own, self.gate = nn.Linear(width, width), nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, bonds):
        mixed = self.own(x)
        for kind, weight in enumerate(self.kinds):
            mixed = mixed + bonds[:, kind] @ weight(x)
        mixed = F.silu(self.norm(mixed))
        share = torch.sigmoid(self.gate(torch.cat([x, mixed], 2)))
        return share * x + (1 - share) * mixed


class DipoleNet(nn.Module):
    def __init__(self, width=112, layers=6):
        super().__init__()
        self.atoms = nn.Embedding(ELEMENTS, width)
        self.layers = nn.ModuleList([Layer(width) for _ in range(layers)])
        self.pool = nn.Linear(width, width)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, 3))

    def forward(self, element, bonds):
        x = self.atoms(element)
        for layer in self.layers:
            x = layer(x, bonds)
        pooled = F.silu(self.pool(x))
        return self.head(torch.cat([pooled.mean(1), pooled.amax(1)], 1))


class Plateau:
    """Halves the rate when the mean loss of a stretch does not fall."""

    def __init__(self, optimizer, stretch):
        self.optimizer, self.stretch, self.losses, self.best = optimizer, stretch, [], math.inf

    def step(self, loss):
        self.losses.append(loss)
        if len(self.losses) == self.stretch:
            mean = sum(self.losses) / self.stretch
            if mean > 0.98 * self.best:
                for group in self.optimizer.param_groups:
                    group["lr"] *= 0.5
            self.best = min(self.best, mean)
            self.losses.clear()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=350)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=48)
    cli.add_argument("--accumulate", type=int, default=2)
    args = cli.parse_args()
    torch.manual_seed(5)

    element, bonds, moment = molecules(3000, seed=1)
    unseen = molecules(150, seed=2)
    model = DipoleNet()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=1e-4)
    plateau = Plateau(optimizer, stretch=25)
    print(f"{sum(1 for _ in model.parameters())} tensors of weights")

    losses = []
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        loss = 0.0
        for _ in range(args.accumulate):
            chosen = torch.randint(0, len(element), (args.batch,))
            guess = model(element[chosen], bonds[chosen])
            part = F.smooth_l1_loss(guess, moment[chosen]) / args.accumulate
            part.backward()
            loss += part.item()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        plateau.step(loss)
        losses.append(loss)
        if step % 25 == 0 or step == args.steps:
            with torch.no_grad():
                error = F.l1_loss(model(*unseen[:2]), unseen[2]).item()
            print(f"step {step} loss {sum(losses[-25:]) / len(losses[-25:]):.4f} error on unseen {error:.4f}")


if __name__ == "__main__":
    main()
