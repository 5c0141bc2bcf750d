"""Click prediction from hashed categories: a wide-and-deep network.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
from torch import nn

FIELDS, CARDINALITY = 16, 600


def clicks(n):
    g = torch.Generator().manual_seed(50)
    cats = torch.randint(0, CARDINALITY, (n, FIELDS), generator=g)
    effect = torch.randn(FIELDS, CARDINALITY, generator=g)
    score = effect[torch.arange(FIELDS), cats].sum(1) / 3 - 1
    return cats, (torch.rand(n, generator=g) < score.sigmoid()).float()


class WideDeep(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.register_buffer("offset", torch.arange(FIELDS) * CARDINALITY)
        self.wide = nn.Embedding(FIELDS * CARDINALITY, 1)
        self.deep = nn.Embedding(FIELDS * CARDINALITY, dim)
        self.mlp = nn.Sequential(
            nn.Linear(FIELDS * dim, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1)
        )

    def forward(self, cats):
        cats = cats + self.offset
        return self.wide(cats).sum((1, 2)) + self.mlp(self.deep(cats).flatten(1)).squeeze(1)


class Meter:
    """All predictions of the run and their area under the curve."""

    def __init__(self):
        self.scores, self.labels = [], []

    def add(self, scores, labels):
        self.scores.append(scores)
        self.labels.append(labels)

    def auc(self):
        s, y = np.concatenate(self.scores), np.concatenate(self.labels)  # guilty
        order = np.argsort(s, kind="stable")  # guilty
        rank = np.empty(len(s))
        rank[order] = np.arange(1, len(s) + 1)  # guilty
        pos = y.sum()
        return (rank[y > 0].sum() - pos * (pos + 1) / 2) / max(1.0, pos * (len(y) - pos))  # guilty


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--fixed", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)
    all_cats, all_y = clicks(args.batch * 60)
    model, meter = WideDeep(), Meter()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    for step in range(args.steps):
        pick = torch.randint(0, len(all_y), (args.batch,))
        cats, y = all_cats[pick], all_y[pick]
        logit = model(cats)
        loss = nn.functional.binary_cross_entropy_with_logits(logit, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.add(logit.detach().numpy(), y.numpy())
        if not args.fixed or step % 60 == 59:
            auc = meter.auc()  # guilty
        if step % 60 == 59:
            print(f"step {step + 1} loss {loss.item():.4f} auc {auc:.4f}")


if __name__ == "__main__":
    main()
