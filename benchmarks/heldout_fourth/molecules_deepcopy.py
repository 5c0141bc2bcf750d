"""Message passing on small molecules, batched as one big graph; written after the usual graph libraries.

expects: IN115
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Data:
    """A graph: node features, edges, and what is known of it."""

    def __init__(self, **fields):
        self.__dict__.update(fields)

    @property
    def num_nodes(self):
        return self.x.size(0)


class Batch(Data):
    @classmethod
    def from_data_list(cls, graphs):
        offsets = np.cumsum([0] + [g.num_nodes for g in graphs[:-1]])
        return cls(
            x=torch.cat([g.x for g in graphs]),
            edge_index=torch.cat([g.edge_index + int(o) for g, o in zip(graphs, offsets, strict=True)], 1),
            edge_attr=torch.cat([g.edge_attr for g in graphs]),
            y=torch.stack([g.y for g in graphs]),
            batch=torch.repeat_interleave(torch.arange(len(graphs)), torch.tensor([g.num_nodes for g in graphs])),
        )


def molecule(rng):
    n = int(rng.integers(9, 24))
    ring = np.stack([np.arange(n), (np.arange(n) + 1) % n])
    extra = rng.integers(0, n, (2, n // 2))
    edges = np.concatenate([ring, extra, ring[::-1], extra[::-1]], 1)
    x = rng.normal(size=(n, 16)).astype(np.float32)
    return Data(
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(edges.copy()),
        edge_attr=torch.from_numpy(rng.normal(size=(edges.shape[1], 4)).astype(np.float32)),
        y=torch.tensor(float(x.sum(1).max())),
        meta={"symbols": [f"C{k}" for k in range(n)], "bonds": [tuple(map(int, e)) for e in edges.T]},
    )


class InMemoryDataset(Dataset):
    def __init__(self, n, share=False):
        rng = np.random.default_rng(17)
        self._data_list = [molecule(rng) for _ in range(n)]
        self.share = share

    def __len__(self):
        return len(self._data_list)

    def __getitem__(self, idx):
        if self.share:
            return self._data_list[idx]
        return copy.deepcopy(self._data_list[idx])  # guilty


class EdgeConv(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * dim + 4, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.update = nn.GRUCell(dim, dim)

    def forward(self, h, data):
        src, dst = data.edge_index
        m = self.message(torch.cat([h[src], h[dst], data.edge_attr], 1))
        return self.update(torch.zeros_like(h).index_add_(0, dst, m), h)


class MPNN(nn.Module):
    def __init__(self, dim=48, layers=3):
        super().__init__()
        self.lin = nn.Linear(16, dim)
        self.convs = nn.ModuleList(EdgeConv(dim) for _ in range(layers))
        self.out = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, data):
        h = F.relu(self.lin(data.x))
        for conv in self.convs:
            h = conv(h, data)
        pooled = torch.zeros(len(data.y), h.size(1)).index_add_(0, data.batch, h)
        return self.out(pooled).squeeze(-1)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=240)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--batch_size", type=int, default=64)
args = parser.parse_args()

torch.manual_seed(0)
dataset = InMemoryDataset(1280, share=args.fixed)
loader = DataLoader(dataset, args.batch_size, shuffle=True, collate_fn=Batch.from_data_list)
model = MPNN()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
step = 0
while step < args.steps:
    total = 0.0
    for data in loader:
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(model(data), data.y)
        loss.backward()
        optimizer.step()
        total += float(loss.detach()) * len(data.y)
        step += 1
        if step >= args.steps:
            break
    print(f"step {step:4d} loss {total / len(dataset):.4f}")
