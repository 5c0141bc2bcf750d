# mypy: ignore-errors
"""A temporal convolutional network with dilated causal convolutions."""

import torch.nn as nn
import torch.nn.functional as F


class Level(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv1 = nn.Conv1d(channels, channels, 3, dilation=dilation)
        self.conv2 = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        h = F.gelu(self.conv1(F.pad(x, (self.pad, 0))))
        return x + self.conv2(h)


class Forecaster(nn.Module):
    def __init__(self, channels, levels, horizon):
        super().__init__()
        self.inp = nn.Conv1d(5, channels, 1)
        self.levels = nn.Sequential(*[Level(channels, 2**i) for i in range(levels)])
        self.out = nn.Linear(channels, horizon * 3)

    def forward(self, x):
        return self.out(self.levels(self.inp(x))[..., -1]).unflatten(-1, (3, -1))


def pinball(pred, target, quantiles=(0.1, 0.5, 0.9)):
    loss = 0.0
    for i, q in enumerate(quantiles):
        err = target - pred[:, i]
        loss = loss + (q * err).clamp_min(0) + ((q - 1) * err).clamp_min(0)
    return loss.mean()
