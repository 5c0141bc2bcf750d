"""Recommends tools of a lending library with a graph of loans (LightGCN with a pairwise ranking loss).

expects: CO513
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Sampler

MEMBERS, TOOLS = 5000, 3000


def make_loans(n, seed):
    rng = np.random.default_rng(seed)
    taste, trait = rng.integers(0, 12, MEMBERS), rng.integers(0, 12, TOOLS)
    member = rng.integers(0, MEMBERS, n)
    tool = rng.integers(0, TOOLS, n)
    kept = (taste[member] == trait[tool]) | (rng.random(n) < 0.15)
    pairs = np.unique(np.stack([member[kept], tool[kept]], 1), axis=0)
    return torch.from_numpy(pairs)


def make_graph(loans):
    """The symmetric, normalised adjacency of members and tools."""
    member, tool = loans[:, 0], loans[:, 1] + MEMBERS
    rows, columns = torch.cat([member, tool]), torch.cat([tool, member])
    degree = torch.bincount(rows, minlength=MEMBERS + TOOLS).clamp(min=1).float()
    values = (degree[rows] * degree[columns]).rsqrt()
    size = (MEMBERS + TOOLS, MEMBERS + TOOLS)
    return torch.sparse_coo_tensor(torch.stack([rows, columns]), values, size).coalesce()


class PairSampler(Sampler):
    """Batches of (member, borrowed, not borrowed): the negative ones are drawn at random."""

    def __init__(self, loans, batch, seed):
        self.loans, self.batch = loans, batch
        self.random = torch.Generator().manual_seed(seed)

    def __len__(self):
        return len(self.loans) // self.batch

    def __iter__(self):
        order = torch.randperm(len(self.loans), generator=self.random)
        for rows in order.split(self.batch)[: len(self)]:
            member, tool = self.loans[rows].unbind(1)
            yield member, tool, torch.randint(TOOLS, (self.batch,), generator=self.random)


class LightGCN(nn.Module):
    def __init__(self, graph, width=48, layers=3):
        super().__init__()
        self.graph, self.layers = graph, layers
        self.table = nn.Parameter(0.1 * torch.randn(MEMBERS + TOOLS, width))

    def propagate(self):
        x = self.table
        total = x
        for _ in range(self.layers):
            x = torch.sparse.mm(self.graph, x)  # guilty
            total = total + x
        return total / (self.layers + 1)

    def members(self, ids):
        return self.propagate()[:MEMBERS][ids]  # guilty

    def tools(self, ids):
        return self.propagate()[MEMBERS:][ids]  # guilty


def ranking_loss(model, member, borrowed, other, fixed):
    if fixed:
        everything = model.propagate()
        m, b, o = everything[member], everything[MEMBERS + borrowed], everything[MEMBERS + other]
    else:
        m = model.members(member)  # guilty
        b, o = model.tools(borrowed), model.tools(other)  # guilty
    ranked = -F.logsigmoid((m * b).sum(1) - (m * o).sum(1)).mean()
    start = model.table[member], model.table[MEMBERS + borrowed], model.table[MEMBERS + other]
    return ranked + 1e-4 * sum(part.square().sum() for part in start) / len(member)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=80)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=1024)
    args = cli.parse_args()
    torch.manual_seed(1)
    loans = make_loans(500_000, 4)
    model = LightGCN(make_graph(loans))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    sampler = PairSampler(loans, args.batch_size, 6)
    done = 0
    while done < args.steps:
        for member, borrowed, other in sampler:
            loss = ranking_loss(model, member, borrowed, other, args.fixed)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            done += 1
            if done % 20 == 0:
                print(f"step {done} loss {loss.item():.4f}")
            if done >= args.steps:
                break


if __name__ == "__main__":
    main()
