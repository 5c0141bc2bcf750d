"""A small network of parallel resolutions built from depthwise convolutions."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from slider.config import POINTS, ModelConfig

IMAGE_CHANNELS = 2
HEATMAP_BIAS = -2.19  # a cell holds a point with a probability of 0.1 before anything is learnt


def normed(convolution: nn.Conv2d, act: bool) -> nn.Sequential:
    layers: list[nn.Module] = [convolution, nn.BatchNorm2d(convolution.out_channels)]
    return nn.Sequential(*layers, nn.ReLU(inplace=True)) if act else nn.Sequential(*layers)


def pointwise(inputs: int, outputs: int, act: bool) -> nn.Sequential:
    return normed(nn.Conv2d(inputs, outputs, 1, bias=False), act)


def depthwise(channels: int, stride: int, act: bool) -> nn.Sequential:
    return normed(nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False), act)


class Separable(nn.Module):
    """Depthwise, then pointwise, around a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(depthwise(channels, 1, act=True), pointwise(channels, channels, act=False))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


class Inverted(nn.Module):
    """A wider depthwise convolution between two pointwise ones, around a shortcut."""

    def __init__(self, channels: int, expansion: int) -> None:
        super().__init__()
        inner = channels * expansion
        self.body = nn.Sequential(
            pointwise(channels, inner, act=True),
            depthwise(inner, 1, act=True),
            pointwise(inner, channels, act=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


class Stage(nn.Module):
    """Blocks at every resolution, then an exchange between neighbours."""

    def __init__(self, widths: list[int], blocks: list[int], expansion: int) -> None:
        super().__init__()
        lowest = len(widths) - 2
        self.branches = nn.ModuleList(
            nn.Sequential(*(Inverted(w, expansion) if level >= lowest else Separable(w) for _ in range(count)))
            for level, (w, count) in enumerate(zip(widths, blocks, strict=True))
        )
        pairs = list(pairwise(widths))
        self.down = nn.ModuleList(
            nn.Sequential(depthwise(high, 2, act=False), pointwise(high, low, act=False)) for high, low in pairs
        )
        self.up = nn.ModuleList(pointwise(low, high, act=False) for high, low in pairs)

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        maps = [branch(x) for branch, x in zip(self.branches, maps, strict=True)]
        mixed = list(maps)
        for level, (down, up) in enumerate(zip(self.down, self.up, strict=True)):
            mixed[level] = mixed[level] + upsampled(up(maps[level + 1]), maps[level])
            mixed[level + 1] = mixed[level + 1] + down(maps[level])
        return [torch.relu(x) for x in mixed]


def upsampled(x: Tensor, like: Tensor) -> Tensor:
    return functional.interpolate(x, size=like.shape[-2:], mode="nearest")


class SliderNet(nn.Module):
    """Heatmap logits [N, 2, H/4, W/4] and sub-cell offsets [N, 4, H/4, W/4] (x, y of the gap, x, y of the piece)."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        widths = [config.width << level for level in range(len(config.blocks))]
        self.register_buffer("mean", torch.zeros(IMAGE_CHANNELS))
        self.register_buffer("std", torch.ones(IMAGE_CHANNELS))
        self.stem = nn.Sequential(
            normed(nn.Conv2d(IMAGE_CHANNELS, widths[0], 3, 2, 1, bias=False), act=True),
            depthwise(widths[0], 2, act=False),
            pointwise(widths[0], widths[0], act=True),
        )
        self.lower = nn.ModuleList(
            nn.Sequential(depthwise(high, 2, act=False), pointwise(high, low, act=True))
            for high, low in pairwise(widths)
        )
        # What a level has blocks of is shared out among the stages.
        shares = [[(count + stage) // config.stages for count in config.blocks] for stage in range(config.stages)]
        self.stages = nn.ModuleList(Stage(widths, share, config.expansion) for share in shares)
        self.collect = nn.ModuleList(pointwise(low, high, act=False) for high, low in pairwise(widths))
        self.neck = Separable(widths[0])
        self.heatmap = nn.Conv2d(widths[0], POINTS, 1)
        self.offset = nn.Conv2d(widths[0], 2 * POINTS, 1)
        nn.init.constant_(self.heatmap.bias, HEATMAP_BIAS)  # type: ignore[arg-type]

    def set_statistics(self, mean: Tensor, std: Tensor) -> None:
        self.mean.copy_(mean)
        self.std.copy_(std)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem((images - self.mean[:, None, None]) / self.std[:, None, None])
        maps = [x]
        for lower in self.lower:
            maps.append(lower(maps[-1]))
        for stage in self.stages:
            maps = stage(maps)
        x = maps[-1]
        for collect, finer in zip(reversed(self.collect), reversed(maps[:-1]), strict=True):
            x = torch.relu(finer + upsampled(collect(x), finer))
        x = self.neck(x)
        return self.heatmap(x), self.offset(x)
