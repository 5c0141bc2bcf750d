"""The network that turns a print into a class and into a vector."""

# mypy: ignore-errors
import torch.nn.functional as F
from torch import nn


class RidgeNet(nn.Module):
    def __init__(self, classes, width=16, size=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 5, 2, 2),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, 1, 1),
            nn.GroupNorm(4, 2 * width),
            nn.ReLU(),
            nn.Conv2d(2 * width, 3 * width, 3, 2, 1),
            nn.GroupNorm(4, 3 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(3),
            nn.Flatten(),
        )
        self.kind, self.vector = nn.Linear(27 * width, classes), nn.Linear(27 * width, size)

    def classify(self, images):
        return self.kind(self.body(images))

    def forward(self, images):
        return F.normalize(self.vector(self.body(images)), dim=1)
