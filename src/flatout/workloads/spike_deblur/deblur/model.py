"""The network: an RGB and a spike branch, fused at four scales inside a U of windowed-attention stages."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from deblur.attention import Block, TemporalAttention
from deblur.config import Model

SCALES = 4


class Stage(nn.Module):
    """A run of attention blocks at one scale."""

    def __init__(self, dim: int, depth: int, config: Model) -> None:
        super().__init__()
        checkpoints = (config.USE_CHECKPOINT_ATTN, config.USE_CHECKPOINT_FFN)
        self.blocks = nn.ModuleList(
            Block(dim, config.HEAD_DIM, config.WINDOW_SIZE, i % 2 == 1, checkpoints) for i in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(frames, dim, height, width); the blocks want the channels last."""
        x = x.permute(0, 2, 3, 1).contiguous()
        for block in self.blocks:
            x = block(x)
        return x.permute(0, 3, 1, 2).contiguous()


class Down(nn.Sequential):
    def __init__(self, dim: int, out: int) -> None:
        super().__init__(nn.Conv2d(dim, out, 2, stride=2), nn.LeakyReLU(0.1))


class Up(nn.Sequential):
    def __init__(self, dim: int, out: int) -> None:
        super().__init__(nn.Conv2d(dim, out * 4, 1), nn.PixelShuffle(2))


class SpikeEncoder(nn.Module):
    """Features of the spike voxels at four scales, with attention over time at the finest."""

    def __init__(self, bins: int, config: Model) -> None:
        super().__init__()
        dims = config.EMBED_DIMS
        self.embed = nn.Conv2d(bins, dims[0], 3, padding=1)
        self.over_time = TemporalAttention(dims[0], config.SPIKE_TSA)
        self.downs = nn.ModuleList(Down(dims[i], dims[i + 1]) for i in range(SCALES - 1))

    def forward(self, spike: Tensor) -> list[Tensor]:
        clips = len(spike)
        x = self.embed(spike.flatten(0, 1))
        x = _attend_over_time(self.over_time, x, x, clips)
        scales = [x]
        for down in self.downs:
            scales.append(down(scales[-1]))
        return scales


def _attend_over_time(attention: TemporalAttention, x: Tensor, context: Tensor, clips: int) -> Tensor:
    def split(features: Tensor) -> Tensor:
        frames: Tensor = features.permute(0, 2, 3, 1).unflatten(0, (clips, -1))
        return frames

    attended: Tensor = attention(split(x), split(context))
    return attended.flatten(0, 1).permute(0, 3, 1, 2).contiguous()


class SpikeVRT(nn.Module):
    """Sharp frames from blurry ones and spikes; predicts what to add to the blurry frame.

    Stages 1 to 4 go down the scales, 5 to 7 up again, stage 8 reconstructs at full resolution.
    """

    def __init__(self, bins: int, config: Model) -> None:
        super().__init__()
        dims, depths = config.EMBED_DIMS, config.VRT_DEPTHS
        self.embed = nn.Conv2d(3, dims[0], 3, padding=1)
        self.spike = SpikeEncoder(bins, config)
        self.fusions = nn.ModuleList(TemporalAttention(dims[i], config.FUSE) for i in range(SCALES))
        self.stages = nn.ModuleList(Stage(dim, depth, config) for dim, depth in zip(dims, depths, strict=True))
        self.downs = nn.ModuleList(Down(dims[i], dims[i + 1]) for i in range(SCALES - 1))
        self.ups = nn.ModuleList(Up(dims[i], dims[i + 1]) for i in range(SCALES - 1, 2 * SCALES - 2))
        skips = [dims[SCALES - 2 - i] for i in range(SCALES - 1)]
        self.merges = nn.ModuleList(
            nn.Conv2d(dims[SCALES + i] + skip, dims[SCALES + i], 1) for i, skip in enumerate(skips)
        )
        self.reconstruct = nn.Conv2d(dims[6], dims[7], 3, padding=1)
        self.last = nn.Conv2d(dims[7], 3, 3, padding=1)

    def forward(self, blur: Tensor, spike: Tensor) -> Tensor:
        """(clips, frames, 3 or bins, height, width) → sharp frames."""
        clips, frames = blur.shape[:2]
        spikes = self.spike(spike)
        x = self.embed(blur.flatten(0, 1))
        skips: list[Tensor] = []
        for scale in range(SCALES):
            x = _attend_over_time(self.fusions[scale], x, spikes[scale], clips)  # type: ignore[arg-type]
            x = self.stages[scale](x)
            if scale < SCALES - 1:
                skips.append(x)
                x = self.downs[scale](x)
        for step in range(SCALES - 1):
            x = self.merges[step](torch.cat([self.ups[step](x), skips.pop()], dim=1))
            x = self.stages[SCALES + step](x)
        x = self.stages[2 * SCALES - 1](self.reconstruct(x))
        sharp: Tensor = blur + self.last(x).unflatten(0, (clips, frames))
        return sharp
