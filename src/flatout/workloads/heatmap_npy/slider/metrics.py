"""Where the network sees the points, and how far off that is."""

from __future__ import annotations

import torch
from torch import Tensor


def locate(logits: Tensor, offsets: Tensor, stride: int) -> Tensor:
    """The points [N, K, 2] in pixels: the strongest cell of each heatmap plus the offset given there."""
    count, points, rows, columns = logits.shape
    cell = logits.float().reshape(count, points, rows * columns).argmax(dim=2)
    inside = offsets.float().reshape(count, points, 2, rows * columns)
    inside = inside.gather(3, cell[:, :, None, None].expand(-1, -1, 2, 1)).squeeze(3)
    corner = torch.stack([cell % columns, cell // columns], dim=2)
    return (corner + inside) * stride


def localisation_error(logits: Tensor, offsets: Tensor, points: Tensor, stride: int) -> Tensor:
    """Distance in pixels of every point [N, K]."""
    return (locate(logits, offsets, stride) - points).square().sum(dim=2).sqrt()
