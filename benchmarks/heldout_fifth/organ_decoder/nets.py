# mypy: ignore-errors
import torch
import torch.nn as nn
import torch.nn.functional as F


def double(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, 1, 1, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(),
        nn.Conv2d(o, o, 3, 1, 1, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(),
    )


class Encoder(nn.Module):
    """The contracting path, which was trained on another task."""

    def __init__(self, width=16, depth=4):
        super().__init__()
        widths = [width * 2**d for d in range(depth)]
        self.stages = nn.ModuleList([double(i, o) for i, o in zip([1, *widths], widths, strict=False)])

    def forward(self, x):
        maps = []
        for stage in self.stages:
            x = stage(x if not maps else F.max_pool2d(x, 2))
            maps.append(x)
        return maps


class Decoder(nn.Module):
    """The expanding path: narrow, with a skip from every stage of the encoder."""

    def __init__(self, classes, width=16, depth=4, mid=12):
        super().__init__()
        self.narrow = nn.ModuleList([nn.Conv2d(width * 2**d, mid, 1) for d in range(depth)])
        self.fuse = nn.ModuleList([nn.Conv2d(mid, mid, 3, 1, 1) for _ in range(depth)])
        self.out = nn.Conv2d(mid, classes, 1)

    def forward(self, maps):
        x = None
        for narrow, fuse, feature in zip(reversed(self.narrow), self.fuse, reversed(maps), strict=True):
            y = narrow(feature)
            x = y if x is None else y + F.interpolate(x, scale_factor=2)
            x = F.relu(fuse(x))
        return self.out(x)


def dice_loss(logits, label):
    prob = logits.softmax(1)
    one_hot = F.one_hot(label, logits.shape[1]).movedim(-1, 1).float()
    inter = (prob * one_hot).sum((0, 2, 3))
    size = prob.sum((0, 2, 3)) + one_hot.sum((0, 2, 3))
    return 1 - ((2 * inter + 1) / (size + 1)).mean() + torch.nn.functional.cross_entropy(logits, label)
