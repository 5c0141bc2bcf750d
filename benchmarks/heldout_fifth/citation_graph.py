"""A graph network that guesses the topics of papers in a made-up citation graph, trained on the whole graph.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F

PAPERS, TOPICS, WORDS = 2400, 7, 128


def make_graph(seed):
    g = torch.Generator().manual_seed(seed)
    topic = torch.randint(0, TOPICS, (PAPERS,), generator=g)
    order = topic.argsort()
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(PAPERS))
    near = order[(rank[:, None] + torch.randint(-90, 90, (PAPERS, 4), generator=g)) % PAPERS]
    far = torch.randint(0, PAPERS, (PAPERS, 1), generator=g)
    cited = torch.cat([near, far], 1).flatten()
    citing = torch.arange(PAPERS).repeat_interleave(5)
    own = torch.arange(PAPERS)
    edges = torch.stack([torch.cat([citing, cited, own]), torch.cat([cited, citing, own])])
    edges = torch.unique(edges, dim=1)
    centres = torch.randn(TOPICS, WORDS, generator=g)
    words = centres[topic] + 2.5 * torch.randn(PAPERS, WORDS, generator=g)
    return words, edges, topic


class Adjacency:
    """The graph's symmetrically normalised adjacency."""

    def __init__(self, edges, fixed):
        degree = torch.bincount(edges[0], minlength=PAPERS).float()
        weight = (degree[edges[0]] * degree[edges[1]]).rsqrt()
        if fixed:
            self.matrix = torch.sparse_coo_tensor(edges, weight, (PAPERS, PAPERS)).coalesce().to_sparse_csr()
        else:
            self.matrix = torch.zeros(PAPERS, PAPERS)  # guilty
            self.matrix[edges[0], edges[1]] = weight  # guilty

    def spread(self, h):
        return self.matrix @ h  # guilty


class Layer(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.own, self.around, self.norm = nn.Linear(i, o), nn.Linear(i, o, bias=False), nn.LayerNorm(o)

    def forward(self, h, adjacency):
        return self.norm(self.own(h) + adjacency.spread(self.around(h)))  # guilty


class CitationNet(nn.Module):
    def __init__(self, width=48, depth=3):
        super().__init__()
        sizes = [WORDS] + [width] * depth
        self.layers = nn.ModuleList([Layer(i, o) for i, o in itertools.pairwise(sizes)])
        self.out = nn.Linear(width, TOPICS)

    def forward(self, words, adjacency):
        h = words
        for layer in self.layers:
            h = F.dropout(F.relu(layer(h, adjacency)), 0.3, self.training)
        return self.out(h)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=420)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--labelled", type=float, default=0.2)
    args = cli.parse_args()
    torch.manual_seed(13)
    words, edges, topic = make_graph(1)
    adjacency = Adjacency(edges, args.fixed)
    labelled = torch.rand(PAPERS) < args.labelled
    model = CitationNet()
    optimizer = torch.optim.Adam(model.parameters(), 5e-3, weight_decay=5e-4)
    for step in range(1, args.steps + 1):
        model.train()
        logits = model(words, adjacency)  # guilty
        loss = F.cross_entropy(logits[labelled], topic[labelled])
        optimizer.zero_grad()
        loss.backward()  # guilty
        optimizer.step()
        if step % 50 == 0:
            model.eval()
            with torch.no_grad():
                right = (model(words, adjacency).argmax(1) == topic)[~labelled].float().mean().item()
            print(f"step {step} loss {loss.item():.4f} unlabelled right {right:.3f}")


if __name__ == "__main__":
    main()
