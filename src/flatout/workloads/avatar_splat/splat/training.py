"""What a training run changes as it goes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from splat.densify import ScreenStats
from splat.gaussians import GaussianModel


@dataclass(slots=True)
class Training:
    """Everything that a checkpoint must hold."""

    model: GaussianModel
    optimizer: torch.optim.Optimizer
    stats: ScreenStats
    step: int = 0
    samples: int = 0
