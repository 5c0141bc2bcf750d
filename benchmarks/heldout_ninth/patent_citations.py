"""Predicts the technology class of patents from the citation graph: two-layer GraphSAGE on sampled neighbourhoods.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

PATENTS, CLASSES, FEATURES = 16_000, 10, 64


def citations(seed):
    """Patents cite mostly older ones of their own class; features are noisy keywords."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, CLASSES, PATENTS)
    members = [np.flatnonzero(classes == number) for number in range(CLASSES)]
    citing, cited = [], []
    for number in range(CLASSES):
        count = 11 * len(members[number])
        citing.append(rng.choice(members[number], count))
        home = rng.random(count) < 0.75
        cited.append(np.where(home, rng.choice(members[number], count), rng.integers(0, PATENTS, count)))
    edges = np.stack([np.concatenate(citing), np.concatenate(cited)])
    edges = edges[:, rng.permutation(edges.shape[1])]
    centers = rng.normal(0, 0.35, (CLASSES, FEATURES))
    features = centers[classes] + rng.normal(0, 1, (PATENTS, FEATURES))
    return edges, features.astype(np.float32), classes


class CitationGraph:
    def __init__(self, edges, grouped):
        self.citing, self.cited = edges
        self.grouped = grouped
        if grouped:
            self.order = np.argsort(self.citing, kind="stable")
            self.start = np.searchsorted(self.citing[self.order], np.arange(PATENTS + 1))

    def neighbours(self, patent):
        if self.grouped:
            return self.cited[self.order[self.start[patent] : self.start[patent + 1]]]
        return self.cited[self.citing == patent]  # guilty

    def hop(self, patents, fanout, rng):
        """Draws up to `fanout` cited patents each; returns the new frontier and its local edges."""
        targets, sources = [], []
        for place, patent in enumerate(patents):
            found = self.neighbours(patent)  # guilty
            if len(found) > fanout:
                found = found[rng.permutation(len(found))[:fanout]]
            targets.append(np.full(len(found), place))
            sources.append(found)
        targets, sources = np.concatenate(targets), np.concatenate(sources)
        extra = np.setdiff1d(sources, patents)
        frontier = np.concatenate([patents, extra])
        place_of = {patent: place for place, patent in enumerate(frontier.tolist())}
        local = np.fromiter((place_of[patent] for patent in sources.tolist()), np.int64, len(sources))
        return frontier, torch.from_numpy(targets), torch.from_numpy(local)


def neighbourhoods(graph, pool, batch, fanouts, rng):
    while True:
        for chunk in np.array_split(rng.permutation(pool), len(pool) // batch):
            frontier, hops = chunk, []
            for fanout in fanouts:
                size = len(frontier)
                frontier, targets, sources = graph.hop(frontier, fanout, rng)  # guilty
                hops.append((size, targets, sources))
            yield chunk, frontier, hops[::-1]


class Sage(nn.Module):
    def __init__(self, narrow, wide):
        super().__init__()
        self.own = nn.Linear(narrow, wide)
        self.other = nn.Linear(narrow, wide, bias=False)

    def forward(self, x, size, targets, sources):
        total = x.new_zeros(size, x.shape[1]).index_add(0, targets, x[sources])
        count = torch.bincount(targets, minlength=size).clamp(min=1)[:, None]
        return self.own(x[:size]) + self.other(total / count)


class Classifier(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.first, self.second = Sage(FEATURES, width), Sage(width, width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x, hops):
        x = F.dropout(F.relu(self.first(x, *hops[0])), 0.2, self.training)
        return self.head(F.relu(self.second(x, *hops[1])))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=180)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    edges, features, classes = citations(31)
    graph = CitationGraph(edges, grouped=args.fixed)
    features, classes = torch.from_numpy(features), torch.from_numpy(classes)
    batches = neighbourhoods(graph, np.arange(12_000), 64, (8, 6), np.random.default_rng(1))

    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, weight_decay=1e-5)
    right = seen = 0
    for step in range(1, args.steps + 1):
        seeds, frontier, hops = next(batches)  # guilty
        scores = model(features[frontier], hops)
        wanted = classes[seeds]
        loss = F.cross_entropy(scores, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += (scores.argmax(1) == wanted).sum().item()
        seen += len(wanted)
        if step % 60 == 0 or step == args.steps:
            print(f"step {step} loss {loss.item():.3f} accuracy {right / seen:.3f}")
            right = seen = 0


if __name__ == "__main__":
    main()
