"""A fully convolutional detector with a stride of four."""

# mypy: ignore-errors

import torch.nn as nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.act(x + self.body(x))


class Detector(nn.Module):
    def __init__(self, width, depth, classes):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width // 2, 5, 2, 2), nn.ReLU(inplace=True), nn.Conv2d(width // 2, width, 3, 2, 1)
        )
        self.body = nn.Sequential(*(Residual(width) for _ in range(depth)))
        self.heat = nn.Conv2d(width, classes, 1)
        self.size = nn.Conv2d(width, 2, 1)
        nn.init.constant_(self.heat.bias, -2.2)

    def forward(self, x):
        x = self.body(self.stem(x))
        return self.heat(x).float(), self.size(x).float()
