"""The whole network: backbone, neck, view transform, map encoder, head."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bev.config import ModelConfig
from bev.grid import CLASSES
from bev.lift import LiftSplat
from bev.swin import Swin

# Rare classes weigh more: a cone covers one cell in ten thousand.
CLASS_WEIGHTS = (0.4, 0.6, 2.0, 1.0, 1.5, 3.0, 3.0, 3.0, 3.0, 4.0, 4.0, 4.0, 4.0, 4.0)


def conv(channels_in: int, channels_out: int, stride: int = 1) -> nn.Sequential:
    """3×3 convolution, norm, activation."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    )


class Neck(nn.Module):
    """Brings the features at 1/32 to 1/16 and mixes both."""

    def __init__(self, channels_fine: int, channels_coarse: int, channels_out: int) -> None:
        super().__init__()
        self.mix = nn.Sequential(conv(channels_fine + channels_coarse, channels_out), conv(channels_out, channels_out))

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        coarse = F.interpolate(coarse, size=fine.shape[-2:], mode="bilinear", align_corners=False)
        mixed: Tensor = self.mix(torch.cat([fine, coarse], dim=1))
        return mixed


class MapEncoder(nn.Module):
    """A small U over the map."""

    def __init__(self, channels_in: int, width: int) -> None:
        super().__init__()
        self.at_full = conv(channels_in, width)
        self.at_half = nn.Sequential(conv(width, width * 2, stride=2), conv(width * 2, width * 2))
        self.at_quarter = nn.Sequential(conv(width * 2, width * 2, stride=2), conv(width * 2, width * 2))
        self.to_half = nn.Conv2d(width * 2, width * 2, 1)
        self.to_full = nn.Conv2d(width * 2, width, 1)
        self.mix_half = conv(width * 2, width * 2)
        self.mix_full = conv(width, width)
        self.head = nn.Conv2d(width, len(CLASSES), 1)

    def forward(self, x: Tensor) -> Tensor:
        full = self.at_full(x)
        half = self.at_half(full)
        quarter = self.at_quarter(half)
        half = self.mix_half(half + F.interpolate(self.to_half(quarter), size=half.shape[-2:]))
        full = self.mix_full(full + F.interpolate(self.to_full(half), size=full.shape[-2:]))
        scores: Tensor = self.head(full)
        return scores


class BevSegmenter(nn.Module):
    """Scores for every class in every cell of the map."""

    class_weights: Tensor

    def __init__(self, config: ModelConfig, image_size: tuple[int, int]) -> None:
        super().__init__()
        dim = config.embed_dim
        self.backbone = Swin(dim, config.depths, config.num_heads, config.window_size, config.drop_path_rate)
        self.neck = Neck(dim * 4, dim * 8, config.neck_channels)
        feature_size = (ceil(image_size[0] / 16), ceil(image_size[1] / 16))
        self.lift = LiftSplat(config.neck_channels, config.context_channels, image_size, feature_size)
        self.encoder = MapEncoder(config.context_channels, config.map_channels)
        self.register_buffer("class_weights", torch.tensor(CLASS_WEIGHTS), persistent=False)

    def forward(self, image: Tensor, pixel_to_ego: Tensor) -> Tensor:
        features = self.neck(*self.backbone(image))
        scores: Tensor = self.encoder(self.lift(features, pixel_to_ego))
        return scores

    def loss(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Weighted cross-entropy over the map."""
        scores = self(batch["image"], batch["pixel_to_ego"])
        return F.cross_entropy(scores.float(), batch["label"], self.class_weights)

    @torch.no_grad()
    def predict(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The class of every cell."""
        scores: Tensor = self(batch["image"], batch["pixel_to_ego"])
        return scores.argmax(dim=1)
