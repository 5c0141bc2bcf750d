"""The training loop, with everything but forward and backward in hooks."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from bev.config import Config
from bev.dataset import Sample
from bev.errors import UserError
from bev.network import BevSegmenter


class Batches(Protocol):
    """Batches without end."""

    def __next__(self) -> Sample: ...


class Hook:
    """Called around every iteration."""

    def before_run(self, runner: Runner) -> None: ...

    def before_train_iter(self, runner: Runner) -> None: ...

    def after_train_iter(self, runner: Runner) -> None: ...

    def after_run(self, runner: Runner) -> None: ...


class Runner:
    """Runs iterations until the wanted number of optimizer steps is done."""

    def __init__(
        self, model: BevSegmenter, optimizer: Optimizer, config: Config, size: str, device: torch.device, out: Path
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.config = config
        self.size = size
        self.device = device
        self.out = out
        self.max_steps = config.runner.max_iters
        self.iter = 0
        self.step = 0
        self.stepped = False  # whether this iteration ended with an optimizer step
        self.scaler = _make_scaler(config, device)
        self.loss = torch.zeros(())
        self.log_vars: dict[str, float] = {}
        self.step_losses: list[float] = []
        self.metrics: dict[str, float] = {}
        self.hooks: Sequence[Hook] = ()

    def run(self, batches: Batches) -> None:
        """Train, until max_steps optimizer steps are done."""
        for hook in self.hooks:
            hook.before_run(self)
        self.model.train()
        while self.step < self.max_steps:
            data = next(batches)
            for hook in self.hooks:
                hook.before_train_iter(self)
            self.train_iter(data)
            self.iter += 1
            for hook in self.hooks:
                hook.after_train_iter(self)
        for hook in self.hooks:
            hook.after_run(self)

    def train_iter(self, data: Sample) -> None:
        """Forward, and the check that training is still sane."""
        batch = self.to_device(data)
        with self.autocast():
            loss = self.model.loss(batch)
        if torch.isnan(loss).any():
            raise UserError(f"the loss is NaN at step {self.step + 1}; lower optimizer.lr or fp16.loss_scale")
        self.loss = loss
        self.log_vars["loss"] = loss.item()

    def to_device(self, data: Sample) -> dict[str, Tensor]:
        """The batch where the model is."""
        return {name: value.to(self.device) for name, value in data.items()}

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Half precision, if the config asks for it and the device has the units for it."""
        if not self.config.fp16.enabled or self.device.type != "cuda":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.float16)


def _make_scaler(config: Config, device: torch.device) -> torch.amp.GradScaler | None:
    if not config.fp16.enabled:
        return None
    scale = config.fp16.loss_scale
    return torch.amp.GradScaler(device.type, init_scale=2.0**16 if isinstance(scale, str) else scale)
