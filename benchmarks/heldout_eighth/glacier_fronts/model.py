"""A small U-net with gated convolutions."""

# mypy: ignore-errors
import torch
import torch.nn.functional as F
from torch import nn


class Gated(nn.Module):
    def __init__(self, narrow, wide):
        super().__init__()
        self.conv = nn.Conv2d(narrow, 2 * wide, 3, padding=1)
        self.norm = nn.GroupNorm(4, wide)
        self.scale = nn.Parameter(torch.ones(wide, 1, 1))

    def forward(self, x):
        value, gate = self.conv(x).chunk(2, 1)
        return self.norm(value * torch.sigmoid(gate)) * self.scale


class FrontNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.down = nn.ModuleList([Gated(1, width), Gated(width, 2 * width), Gated(2 * width, 2 * width)])
        self.mix = nn.ModuleList([Gated(2 * width, 2 * width) for _ in range(4)])
        self.up = nn.ModuleList([Gated(4 * width, 2 * width), Gated(3 * width, width)])
        self.head = nn.Conv2d(width, 3, 1)

    def forward(self, x):
        kept = []
        for stage in self.down:
            x = stage(x)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        for stage in self.mix:
            x = x + stage(x)
        x = F.interpolate(x, scale_factor=2)
        for stage, skip in zip(self.up, (kept[1], kept[0])):
            x = F.interpolate(x, scale_factor=2)
            x = stage(torch.cat([x, skip], 1))
        return self.head(x)


def dice(logits, labels):
    share = logits.softmax(1)
    truth = F.one_hot(labels, 3).permute(0, 3, 1, 2).float()
    both = (share * truth).sum((0, 2, 3))
    return 1 - (2 * both / (share.sum((0, 2, 3)) + truth.sum((0, 2, 3)) + 1)).mean()


def boundary(logits, labels):
    """Penalises probability that changes where the labels do not."""
    share = logits.softmax(1)
    across = (share[..., 1:] - share[..., :-1]).abs().sum(1)
    same = (labels[..., 1:] == labels[..., :-1]).float()
    return (across * same).sum() / same.sum()
