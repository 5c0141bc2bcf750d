"""Focal loss of the heatmaps, L1 loss of the offsets."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Losses(NamedTuple):
    total: Tensor
    heatmap: Tensor
    offset: Tensor
    positives: Tensor


class Terms(NamedTuple):
    """Sums over the batch, before any division."""

    found: Tensor
    background: Tensor
    offset: Tensor
    positives: Tensor


def loss_terms(logits: Tensor, offsets: Tensor, heatmap_target: Tensor, offset_target: Tensor) -> Terms:
    """The cell of a point has the target 1; other cells count less the nearer they are to it."""
    probability = torch.sigmoid(logits.float()).clamp(1e-4, 1 - 1e-4)
    positive = heatmap_target.eq(1).float()
    found = torch.log(probability) * (1 - probability) ** 2 * positive
    background = torch.log(1 - probability) * probability**2 * (1 - heatmap_target) ** 4 * (1 - positive)
    # Each heatmap has two offset channels.
    distance = (offsets.float() - offset_target).abs().unflatten(1, (-1, 2)) * positive.unsqueeze(2)
    return Terms(found.sum(), background.sum(), distance.sum(), positive.sum())


def heatmap_loss(
    logits: Tensor, offsets: Tensor, heatmap_target: Tensor, offset_target: Tensor, offset_weight: float
) -> Losses:
    terms = loss_terms(logits, offsets, heatmap_target, offset_target)
    num_pos = terms.positives
    if num_pos > 0:
        heatmap = -(terms.found + terms.background) / num_pos
        offset = terms.offset / num_pos
    else:
        heatmap = -terms.background
        offset = terms.offset
    return Losses(heatmap + offset_weight * offset, heatmap, offset, num_pos)
