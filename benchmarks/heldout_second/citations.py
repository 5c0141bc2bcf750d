"""Topics of papers from whom they cite: a two-layer graph network trained on random parts of the graph.

expects: HO402
needs: cpu
"""

# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.nn import functional as F

PAPERS, WORDS, TOPICS, CITED = 3000, 64, 7, 8


class Neighbourhood(nn.Module):
    """Mean of the cited papers, beside the paper itself."""

    def __init__(self, inputs: int, outputs: int, gather: bool):
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.others = nn.Linear(inputs, outputs, bias=False)
        self.gather = gather

    def forward(self, papers, cites):
        if self.gather:
            around = papers[cites].mean(1)
        else:
            around = torch.zeros_like(papers)
            for paper in range(len(papers)):
                around[paper] = papers[cites[paper]].mean(0)  # guilty
        return self.own(papers) + self.others(around)


class CitationNet(nn.Module):
    def __init__(self, width: int, gather: bool):
        super().__init__()
        self.first = Neighbourhood(WORDS, width, gather)
        self.second = Neighbourhood(width, TOPICS, gather)

    def forward(self, papers, cites):
        return self.second(F.relu(self.first(papers, cites)), cites)


def subgraph(generator, words, topics, size):
    chosen = torch.randperm(PAPERS, generator=generator)[:size]
    cites = torch.randint(size, (size, CITED), generator=generator)
    return words[chosen], topics[chosen], cites


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=230)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    topics = torch.randint(TOPICS, (PAPERS,), generator=generator)
    words = torch.randn(PAPERS, WORDS, generator=generator) + F.one_hot(topics, WORDS)
    net = CitationNet(1024, gather=args.fixed)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
    for step in range(args.steps):
        papers, labels, cites = subgraph(generator, words, topics, args.size)
        loss = F.cross_entropy(net(papers, cites), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
