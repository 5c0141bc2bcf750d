"""PSNR and SSIM on the held-out sequences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from deblur.loader import as_tensors
from deblur.quality import psnr, ssim


@torch.no_grad()
def evaluate(model: nn.Module, loader: Iterable[dict[str, Any]], device: torch.device) -> tuple[float, float]:
    model.eval()
    scores: list[tuple[float, float]] = []
    for arrived in loader:
        batch = as_tensors(arrived)
        output: Tensor = model(batch["blur"].to(device), batch["spike"].to(device))
        restored, sharp = output.clamp(0, 1).flatten(0, 1), batch["sharp"].to(device).flatten(0, 1)
        scores.append((psnr(restored, sharp), ssim(restored, sharp)))
    model.train()
    return sum(score[0] for score in scores) / len(scores), sum(score[1] for score in scores) / len(scores)
