"""A detector of centres: a small network with a heat map and a size at every cell."""

# mypy: ignore-errors
import torch
import torch.nn.functional as F
from torch import nn


def conv(inside, outside, stride=1):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1), nn.GroupNorm(4, outside), nn.ReLU())


class CentreNet(nn.Module):
    def __init__(self, kinds, width=16):
        super().__init__()
        self.down = nn.Sequential(conv(3, width, 2), conv(width, 2 * width, 2))
        self.deep = nn.Sequential(conv(2 * width, 4 * width, 2), conv(4 * width, 2 * width))
        self.mix = conv(4 * width, 2 * width)
        self.heat, self.size = nn.Conv2d(2 * width, kinds, 1), nn.Conv2d(2 * width, 2, 1)
        nn.init.constant_(self.heat.bias, -2.5)

    def forward(self, images):
        early = self.down(images)
        deep = F.interpolate(self.deep(early), scale_factor=2.0)
        mixed = self.mix(torch.cat([early, deep], 1))
        return self.heat(mixed), self.size(mixed)


def detection_loss(logits, made_sizes, heat, sizes, centres):
    chance = logits.sigmoid().clamp(1e-4, 1 - 1e-4)
    at = heat.eq(1.0).float()
    hit = at * (1 - chance) ** 2 * chance.log()
    miss = (1 - at) * (1 - heat) ** 4 * chance**2 * (1 - chance).log()
    count = centres.sum().clamp(min=1)
    return -(hit + miss).sum() / count, (centres * (made_sizes - sizes).abs()).sum() / count
