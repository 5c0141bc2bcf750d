"""A one-dimensional U-Net for picking, and its loss."""

# mypy: ignore-errors
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn


def layer(n_in, n_out, stride=1):
    return nn.Sequential(nn.Conv1d(n_in, n_out, 7, stride, 3, bias=False), nn.BatchNorm1d(n_out), nn.ReLU())


class PickNet(nn.Module):
    def __init__(self, widths=(12, 20, 32, 48)):
        super().__init__()
        self.enter = layer(3, widths[0])
        pairs = list(pairwise(widths))
        self.down = nn.ModuleList([layer(a, b, 4) for a, b in pairs])
        self.up = nn.ModuleList([nn.ConvTranspose1d(b, a, 4, 4) for a, b in reversed(pairs)])
        self.join = nn.ModuleList([layer(2 * a, a) for a, _ in reversed(pairs)])
        self.leave = nn.Conv1d(widths[0], 3, 1)

    def forward(self, x):
        x = self.enter(x)
        kept = []
        for down in self.down:
            kept.append(x)
            x = down(x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return self.leave(x)


def pick_loss(logits, marks):
    return F.cross_entropy(logits, marks, weight=torch.tensor([0.05, 1.0, 1.0]))
