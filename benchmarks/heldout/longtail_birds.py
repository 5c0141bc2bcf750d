"""Bird calls with a long tail of rare species: a sampler that favours what it has shown least.

expects: IN111
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Calls(Dataset):
    def __init__(self, count=20_000, species=50, size=128):
        rng = np.random.default_rng(4)
        self.species = np.minimum(rng.zipf(1.5, count) - 1, species - 1)
        self.centres = rng.normal(size=(species, size)).astype(np.float32)

    def __len__(self):
        return len(self.species)

    def __getitem__(self, index):
        species = self.species[index]
        return torch.from_numpy(self.centres[species]) + torch.randn(self.centres.shape[1]), species


class LeastShown(Sampler):
    """Draws each call with a chance that falls with how often its species was shown."""

    def __init__(self, species, draws, seed=0):
        self.species, self.draws = species, draws
        self.rng = np.random.default_rng(seed)
        self.shown = np.ones(species.max() + 1)

    def __len__(self):
        return self.draws

    def __iter__(self):
        for _ in range(self.draws):
            weights = 1.0 / self.shown[self.species]
            index = self.rng.choice(len(weights), p=weights / weights.sum())  # guilty
            self.shown[self.species[index]] += 1
            yield int(index)


class LeastShownSpecies(LeastShown):
    """The same chances: first a species, then one of its calls."""

    def __iter__(self):
        members = [np.flatnonzero(self.species == kind) for kind in range(len(self.shown))]
        sizes = np.array([len(calls) for calls in members])
        for _ in range(self.draws):
            weights = np.cumsum(sizes / self.shown)
            kind = np.searchsorted(weights, self.rng.random() * weights[-1])
            self.shown[kind] += 1
            yield int(members[kind][self.rng.integers(sizes[kind])])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    calls = Calls()
    sampler = (LeastShownSpecies if args.fixed else LeastShown)(calls.species, args.draws)
    loader = DataLoader(calls, batch_size=80, sampler=sampler)  # guilty
    model = nn.Sequential(nn.Linear(128, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 50))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(args.epochs):
        right = 0
        for x, y in loader:
            scores = model(x)
            loss = nn.functional.cross_entropy(scores, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += int((scores.argmax(1) == y).sum())
        print(f"epoch {epoch}: {right / args.draws:.1%} right")


if __name__ == "__main__":
    main()
