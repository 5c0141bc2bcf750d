"""Point clouds merged into a batch type of the project's own, by growing a tensor.

expects: IN107
needs: cpu
"""
# mypy: ignore-errors

import argparse

import torch
from batching import merge, merge_slowly
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        return torch.randn(250 + i % 100, 3, generator=generator), i % 8


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 64), nn.ReLU())
        self.head = nn.Linear(64, 8)

    def forward(self, clouds):
        features = self.local(clouds.points)
        pooled = torch.zeros(len(clouds), features.shape[1]).index_add_(0, clouds.owner, features)
        return self.head(pooled)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
net = PointNet()
optimizer = torch.optim.Adam(net.parameters())
loader = DataLoader(  # guilty
    Shapes(16 * args.steps),
    batch_size=16,
    num_workers=1,
    collate_fn=merge if args.fixed else merge_slowly,
)
for clouds in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(clouds), clouds.labels)
    loss.backward()
    optimizer.step()
