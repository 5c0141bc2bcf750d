"""A reader of plates: convolutions, then one softmax for each place."""

# mypy: ignore-errors

import itertools

from torch import nn


class Reader(nn.Module):
    def __init__(self, channels: int, places: int, letters: int):
        super().__init__()
        sizes = [1, channels, 2 * channels, 2 * channels]
        layers = []
        for a, b in itertools.pairwise(sizes):
            layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d((1, places)))
        self.heads = nn.Conv1d(2 * channels, letters, 1)

    def forward(self, images):
        return self.heads(self.body(images).squeeze(2))
