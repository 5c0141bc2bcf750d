"""A frozen VGG-like network with random weights: distance of images in its features."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PerceptualNet(nn.Module):
    """Three stages of two convolutions; random features rank distortions nearly as well as trained ones."""

    def __init__(self, width: int, seed: int = 77) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        widths = [3, width, width, 2 * width, 2 * width, 4 * width, 4 * width]
        self.convolutions = nn.ModuleList(
            nn.utils.skip_init(nn.Conv2d, a, b, 3, padding=1) for a, b in pairwise(widths)
        )
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv2d) and convolution.bias is not None
            fan_in = convolution.in_channels * 9
            weight = torch.randn(convolution.weight.shape, generator=generator) * (2 / fan_in) ** 0.5
            convolution.weight.data.copy_(weight)
            convolution.bias.data.zero_()
        self.requires_grad_(False)

    def features(self, image: Tensor) -> list[Tensor]:
        """Features of the three stages."""
        values, stages = image * 2 - 1, []
        for i, convolution in enumerate(self.convolutions):
            values = F.relu(convolution(values))
            if i % 2 == 1:
                stages.append(values)
                values = F.avg_pool2d(values, 2)
        return stages

    def forward(self, image: Tensor, target: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = self.features(target)
        distances = [(a - b).abs().mean(dtype=torch.float32) for a, b in zip(self.features(image), wanted, strict=True)]
        return torch.stack(distances).mean()
