"""Graph convolutions that classify the papers of a citation network, trained on the whole graph.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def citation_network(papers, classes, words, seed):
    """Papers with a subject each; most citations stay within the subject."""
    rng = np.random.default_rng(seed)
    subject = rng.integers(0, classes, papers)
    by_subject = [np.flatnonzero(subject == c) for c in range(classes)]
    src = np.repeat(np.arange(papers), 5)
    near = np.array([rng.choice(by_subject[subject[s]]) for s in src[::5]])
    far = rng.integers(0, papers, len(src))
    dst = np.where(rng.random(len(src)) < 0.6, np.repeat(near, 5), far)
    topics = rng.random((classes, words)) < 0.02
    bag = (rng.random((papers, words)) < 0.01) | (topics[subject] & (rng.random((papers, words)) < 0.4))
    return torch.from_numpy(np.stack([src, dst])), torch.from_numpy(bag).float(), torch.from_numpy(subject)


def normalized(edges, n):
    """D^-1/2 (A + I) D^-1/2 of the undirected graph."""
    loops = torch.arange(n)
    row = torch.cat([edges[0], edges[1], loops])
    col = torch.cat([edges[1], edges[0], loops])
    adj = torch.sparse_coo_tensor(torch.stack([row, col]), torch.ones(len(row)), (n, n)).coalesce()
    row, col = adj.indices()
    scale = torch.zeros(n).index_add_(0, row, adj.values()).rsqrt()
    return torch.sparse_coo_tensor(adj.indices(), adj.values() * scale[row] * scale[col], (n, n)).coalesce()


class GraphConv(nn.Module):
    def __init__(self, size_in, size_out):
        super().__init__()
        self.lin = nn.Linear(size_in, size_out)

    def forward(self, x, adj):
        return adj @ self.lin(x)  # guilty


class GCN(nn.Module):
    def __init__(self, words, hidden, classes, drop=0.5):
        super().__init__()
        self.convs = nn.ModuleList([GraphConv(words, hidden), GraphConv(hidden, hidden), GraphConv(hidden, hidden)])
        self.norms = nn.ModuleList([nn.LayerNorm(hidden) for _ in self.convs])
        self.out = nn.Linear(hidden, classes)
        self.drop = nn.Dropout(drop)

    def forward(self, x, adj):
        h = None
        for conv, norm in zip(self.convs, self.norms, strict=True):
            new = F.relu(norm(conv(self.drop(x), adj)))
            h = new if h is None else h + new
            x = h
        return self.out(self.drop(h))


@torch.no_grad()
def accuracy(model, x, adj, y, rows):
    model.eval()
    hit = (model(x, adj)[rows].argmax(-1) == y[rows]).float().mean().item()
    model.train()
    return hit


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=270)
    cli.add_argument("--hidden", type=int, default=64)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(1)
    n, classes = 2200, 7
    edges, x, y = citation_network(n, classes, 320, seed=1)
    adj = normalized(edges, n)
    if not args.fixed:
        adj = adj.to_dense()  # guilty
    order = torch.randperm(n)
    train, valid = order[:700], order[700:1100]
    model = GCN(x.shape[1], args.hidden, classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=5e-4)
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, adj)[train], y[train])
        loss.backward()  # guilty
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.3f} valid {accuracy(model, x, adj, y, valid):.3f}")


if __name__ == "__main__":
    main()
