"""A small U-Net with wide inner stages."""

# mypy: ignore-errors
import torch
import torch.nn as nn


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.GroupNorm(8, outputs),
        nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.GroupNorm(8, outputs),
        nn.SiLU(),
    )


class UNet(nn.Module):
    def __init__(self, widths=(16, 32, 64, 128, 256)):
        super().__init__()
        self.downs = nn.ModuleList()
        inputs = 1
        for width in widths:
            self.downs.append(block(inputs, width))
            inputs = width
        self.ups = nn.ModuleList()
        for width in reversed(widths[:-1]):
            self.ups.append(block(inputs + width, width))
            inputs = width
        self.pool = nn.MaxPool2d(2)
        self.grow = nn.Upsample(scale_factor=2)
        self.out = nn.Conv2d(inputs, 1, 1)

    def forward(self, x):
        skips = []
        for index, down in enumerate(self.downs):
            x = down(self.pool(x) if index else x)
            skips.append(x)
        skips.pop()
        for up in self.ups:
            x = up(torch.cat([self.grow(x), skips.pop()], 1))
        return self.out(x)
