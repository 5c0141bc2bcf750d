"""Classes of patents; their markup is parsed when needed and the last ones parsed are kept.

expects: ME709, IN110
needs: cpu
"""

# mypy: ignore-errors

import argparse
import functools
import random
import xml.etree.ElementTree as ET
from collections import Counter

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS = [f"w{number}" for number in range(300)]
SECTIONS = 8


def compose(rng):
    claims = "".join(f"<claim id='{i}'>{' '.join(rng.choices(WORDS, k=30))}</claim>" for i in range(30))
    return f"<patent><claims>{claims}</claims></patent>"


def parse(markup):
    counts = Counter()
    for claim in ET.fromstring(markup).iter("claim"):
        counts.update(word.strip(".,;").lower() for word in claim.text.split())
    vector = torch.tensor([float(counts[word]) for word in WORDS])
    return vector / vector.sum()


class Patents(Dataset):
    def __init__(self, count, kept):
        rng = random.Random(31)
        self.markup = [compose(rng) for _ in range(count)]
        self.vector = functools.lru_cache(maxsize=kept)(self._vector)  # guilty

    def _vector(self, index):
        return parse(self.markup[index])

    def __len__(self):
        return len(self.markup)

    def __getitem__(self, index):
        return self.vector(index), index % SECTIONS


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=280)
    parser.add_argument("--cache-size", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dataset = Patents(480, kept=480 if args.fixed else args.cache_size)
    loader = DataLoader(dataset, batch_size=24, shuffle=True, num_workers=1, persistent_workers=True)  # guilty
    net = nn.Sequential(nn.Linear(len(WORDS), 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, SECTIONS))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(-(-args.steps // len(loader))):
        mean = 0.0
        for vectors, sections in loader:
            loss = nn.functional.cross_entropy(net(vectors), sections)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean += loss.item() / len(loader)
        print(f"epoch {epoch}: {mean:.4f}")


if __name__ == "__main__":
    main()
