"""A small residual network for grey images."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    """Two 3×3 convolutions and a way past them."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.past: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.past = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return torch.relu(y + self.past(x))


class GreyNet(nn.Module):
    """A stem that shrinks the image, then stages that each halve it and double the channels."""

    def __init__(self, stem_stride: int, width: int, blocks: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, width, 5, stem_stride, padding=2, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        stages: list[nn.Module] = []
        channels = width
        for stage, count in enumerate(blocks):
            out = width * 2**stage
            for number in range(count):
                stages.append(Block(channels, out, stride=2 if stage > 0 and number == 0 else 1))
                channels = out
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.stages(self.stem(x)).mean(dim=(2, 3))
        logits: torch.Tensor = self.head(features)
        return logits
