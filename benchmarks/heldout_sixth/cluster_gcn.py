"""Node classification on a citation graph, trained on one cluster of nodes at a time.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CLUSTERS, NODES, TOPICS, WORDS = 8, 1400, 6, 200


@dataclass
class Cluster:
    words: torch.Tensor
    topic: torch.Tensor
    train: torch.Tensor
    matrix: torch.Tensor


def make_cluster(rng, vocabulary, fixed):
    """Papers cite about four others, three quarters of them of their own topic."""
    topic = rng.integers(0, TOPICS, NODES)
    words = (rng.random((NODES, WORDS)) < vocabulary[topic]).astype(np.float32)
    members = [np.flatnonzero(topic == t) for t in range(TOPICS)]
    a = np.repeat(np.arange(NODES), 4)
    near = np.stack([rng.choice(members[t], 4) for t in topic]).ravel()
    b = np.where(rng.random(len(a)) < 0.75, near, rng.integers(0, NODES, len(a)))
    loops = np.arange(NODES)
    edges = np.unique(np.stack([np.r_[a, b, loops], np.r_[b, a, loops]]), axis=1)
    degree = np.bincount(edges[0], minlength=NODES)
    weight = (1 / np.sqrt(degree[edges[0]] * degree[edges[1]])).astype(np.float32)
    matrix = torch.zeros(NODES, NODES)
    matrix[tuple(torch.from_numpy(edges))] = torch.from_numpy(weight)
    if fixed:
        matrix = matrix.to_sparse_csr()
    train = torch.from_numpy(rng.random(NODES) < 0.6)
    return Cluster(torch.from_numpy(words), torch.from_numpy(topic), train, matrix)


class SparsePropagate(torch.autograd.Function):
    """The product with a matrix that is its own transpose."""

    @staticmethod
    def forward(ctx, matrix, x):
        ctx.matrix = matrix
        return matrix @ x

    @staticmethod
    def backward(ctx, slope):
        return None, ctx.matrix @ slope


class GraphConv(nn.Module):
    def __init__(self, inputs, outputs, fixed):
        super().__init__()
        self.linear, self.fixed = nn.Linear(inputs, outputs), fixed

    def forward(self, x, graph):
        x = self.linear(x)
        if self.fixed:
            return SparsePropagate.apply(graph.matrix, x)
        return graph.matrix @ x  # guilty


class GCN(nn.Module):
    def __init__(self, width=96, depth=3, fixed=False):
        super().__init__()
        self.convs = nn.ModuleList([GraphConv(WORDS if not i else width, width, fixed) for i in range(depth)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(depth)])
        self.out = nn.Linear(width, TOPICS)

    def forward(self, graph):
        x = graph.words
        for index, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=False)):
            h = F.dropout(F.relu(norm(conv(x, graph))), 0.2, self.training)
            x = x + h if index else h
        return self.out(x)


@torch.no_grad()
def held_out_accuracy(model, clusters):
    model.eval()
    hits = [(model(c).argmax(1) == c.topic)[~c.train].float().mean().item() for c in clusters]
    model.train()
    return sum(hits) / len(hits)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=220)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(31)
    rng = np.random.default_rng(32)
    vocabulary = rng.beta(0.5, 8.0, (TOPICS, WORDS))
    clusters = [make_cluster(rng, vocabulary, args.fixed) for _ in range(CLUSTERS)]
    model = GCN(fixed=args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
    order = []
    for step in range(1, args.steps + 1):
        if not order:
            order = rng.permutation(CLUSTERS).tolist()
        graph = clusters[order.pop()]
        logits = model(graph)
        loss = F.cross_entropy(logits[graph.train], graph.topic[graph.train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f} held out {held_out_accuracy(model, clusters[:3]):.3f}")


if __name__ == "__main__":
    main()
