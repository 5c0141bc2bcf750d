"""A graph convolutional network that labels the nodes of a synthetic citation graph, full batch.

expects: HO408
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def make_graph(n=600, classes=6, features=200, seed=12):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, classes, n)
    same = label[:, None] == label[None, :]
    adj = rng.random((n, n)) < np.where(same, 0.02, 0.002)
    adj = np.triu(adj, 1)
    src, dst = np.nonzero(adj | adj.T)
    x = rng.normal(0, 1, (n, features)) + 0.4 * rng.normal(0, 1, (classes, features))[label]
    train = rng.random(n) < 0.2
    return x.astype(np.float32), label, np.stack([src, dst]), train


def propagation(edges, n):
    a = np.eye(n)  # guilty
    a[edges[0], edges[1]] = 1.0  # guilty
    d = np.diag(1 / np.sqrt(a.sum(1)))  # guilty
    return torch.from_numpy((d @ a @ d).astype(np.float32))  # guilty


class GraphConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.lin = nn.Linear(cin, cout, bias=False)

    def forward(self, x, prop):
        return prop @ self.lin(x)


class GCN(nn.Module):
    def __init__(self, edges, size, once, width=128):
        super().__init__()
        n, cin, classes = size
        self.edges, self.n = edges, n
        self.conv = nn.ModuleList([GraphConv(cin, width), GraphConv(width, width), GraphConv(width, classes)])
        if once:
            self.register_buffer("prop", propagation(edges, n), persistent=False)

    def forward(self, x):
        prop = self.prop if hasattr(self, "prop") else propagation(self.edges, self.n)  # guilty
        for conv in self.conv[:-1]:
            x = F.dropout(F.relu(conv(x, prop)), 0.5, self.training)
        return self.conv[-1](x, prop)


def accuracy(model, x, y, mask):
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(1) == y)[mask].float().mean().item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    features, label, edge_index, mask = make_graph()
    x, y, mask = torch.from_numpy(features), torch.from_numpy(label), torch.from_numpy(mask)
    model = GCN(edge_index, (len(x), x.shape[1], 6), args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for epoch in range(args.steps):
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x)[mask], y[mask])  # guilty
        loss.backward()
        optimizer.step()
        if epoch % 40 == 39:
            print(f"epoch {epoch + 1} loss {loss.item():.4f} test {accuracy(model, x, y, ~mask):.3f}")
