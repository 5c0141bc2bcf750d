# mypy: ignore-errors
import torch
import torch.nn as nn


class DenseLayer(nn.Module):
    def __init__(self, i, growth):
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(4, i),
            nn.ReLU(),
            nn.Conv2d(i, 2 * growth, 1, bias=False),
            nn.GroupNorm(4, 2 * growth),
            nn.ReLU(),
            nn.Conv2d(2 * growth, growth, 3, 1, 1, bias=False),
        )

    def forward(self, x):
        return torch.cat([x, self.body(x)], 1)


class XrayNet(nn.Module):
    """A narrow densely connected network."""

    def __init__(self, findings, growth=8, layers=(4, 4, 4)):
        super().__init__()
        parts, width = [nn.Conv2d(1, 16, 5, 2, 2)], 16
        for count in layers:
            for _ in range(count):
                parts.append(DenseLayer(width, growth))
                width += growth
            parts += [nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
            width //= 2
        self.body, self.out = nn.Sequential(*parts), nn.Linear(width, findings)

    def forward(self, x):
        return self.out(self.body(x).mean((2, 3)))
