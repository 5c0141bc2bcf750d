"""Graph convolutions on a citation graph, full batch, with drop-edge-free propagation and a small label set.

expects: other, HO408
needs: cpu
"""

# mypy: ignore-errors
import argparse
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F


def citation_graph(n, classes, features, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=g)
    src = torch.arange(n).repeat(5)
    same = torch.rand(len(src), generator=g) < 0.8
    order = torch.argsort(y, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(n)
    near = order[(rank[src] + torch.randint(1, n // classes // 2, (len(src),), generator=g)) % n]
    dst = torch.where(same, near, torch.randint(0, n, (len(src),), generator=g))
    edges = torch.cat([torch.stack([src, dst]), torch.stack([dst, src])], 1).unique(dim=1)
    x = torch.randn(n, features, generator=g) + F.one_hot(y, features).float()
    return x, edges, y


def gcn_norm(edges, n):
    """The normalised adjacency with self-loops, as a sparse matrix."""
    loops = torch.arange(n).repeat(2, 1)
    index = torch.cat([edges, loops], 1)
    adj = torch.sparse_coo_tensor(index, torch.ones(index.shape[1]), (n, n)).coalesce()  # guilty
    deg = torch.sparse.sum(adj, 1).to_dense().clamp(min=1).rsqrt()  # guilty
    row, col = adj.indices()
    return torch.sparse_coo_tensor(adj.indices(), deg[row] * adj.values() * deg[col], (n, n)).coalesce()  # guilty


class GCNConv(nn.Module):
    def __init__(self, cin, cout, cached):
        super().__init__()
        self.lin = nn.Linear(cin, cout, bias=False)
        self.bias = nn.Parameter(torch.zeros(cout))
        self.cached, self.adj = cached, None

    def forward(self, x, edges):
        if self.adj is None or not self.cached:
            self.adj = gcn_norm(edges, len(x))  # guilty
        return torch.sparse.mm(self.adj, self.lin(x)) + self.bias


class GCN(nn.Module):
    def __init__(self, features, hidden, classes, cached):
        super().__init__()
        dims = [features, hidden, hidden, classes]
        self.convs = nn.ModuleList(GCNConv(a, b, cached) for a, b in itertools.pairwise(dims))

    def forward(self, x, edges):
        for conv in self.convs[:-1]:
            x = F.dropout(F.relu(conv(x, edges)), 0.5, self.training)
        return self.convs[-1](x, edges)


def accuracy(out, y, mask):
    return (out[mask].argmax(1) == y[mask]).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--nodes", type=int, default=6000)
    parser.add_argument("--hidden", type=int, default=48)
    args = parser.parse_args()
    torch.manual_seed(0)
    x, edges, y = citation_graph(args.nodes, 7, 64)
    labelled = torch.rand(args.nodes) < 0.1
    model = GCN(64, args.hidden, 7, cached=args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for epoch in range(1, args.steps + 1):
        model.train()
        optimizer.zero_grad()
        out = model(x, edges)
        loss = F.cross_entropy(out[labelled], y[labelled])
        loss.backward()
        optimizer.step()
        if epoch % 30 == 0:
            model.eval()
            with torch.no_grad():
                acc = accuracy(model(x, edges), y, ~labelled)
            print(f"epoch {epoch:4d} loss {loss.item():.4f} test {acc:.4f}")


if __name__ == "__main__":
    main()
