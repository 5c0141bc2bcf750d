"""The model, its optimizer and one training step."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from deblur import checkpoint
from deblur.config import Config
from deblur.model import SpikeVRT
from deblur.quality import charbonnier, edge_loss


def create_model(config: Config, device: torch.device) -> SpikeVRT:
    return SpikeVRT(config.DATA.SPIKE_BINS, config.MODEL).to(device)


def load_teacher(config: Config, size: str, device: torch.device) -> nn.Module | None:
    """A trained model whose output the student is to come near, too."""
    if not config.DISTILL.TEACHER:
        return None
    path = Path(config.DISTILL.TEACHER)
    content = checkpoint.read(path, size)
    teacher = SpikeVRT(config.DATA.SPIKE_BINS, checkpoint.model_config(content))
    checkpoint.load_model(teacher, content, path)
    return teacher.to(device).eval().requires_grad_(False)


class Trainer:
    """The model with all that a step needs."""

    def __init__(self, args: argparse.Namespace, config: Config) -> None:
        self.args, self.config, self.device = args, config, args.device
        self.model = create_model(config, args.device)
        self.network: Callable[[Tensor, Tensor], Tensor] = self.model
        if config.TRAIN.COMPILE_MODEL:
            self.network = torch.compile(self.model, mode="max-autotune")
        self.teacher = load_teacher(config, args.size, args.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.TRAIN.LR)
        self.amp = config.TRAIN.AMP_ENABLED and self.device.type == "cuda"
        self.amp_dtype = torch.float16
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.amp)
        self.step = 0
        self.loss = float("nan")
        self.losses: list[float] = []

    def compute_losses(self, blur: Tensor, spike: Tensor, sharp: Tensor) -> dict[str, Tensor]:
        with torch.autocast(self.device.type, self.amp_dtype, enabled=self.amp):
            output = self.network(blur, spike)
        output = output.float()
        losses = {"pixel": charbonnier(output, sharp), "edge": self.config.TRAIN.EDGE_WEIGHT * edge_loss(output, sharp)}
        if self.teacher is not None:
            with torch.no_grad():
                taught = self.teacher(blur, spike)
            losses["distill"] = self.config.DISTILL.WEIGHT * charbonnier(output, taught)
        return losses

    def optimize(self) -> None:
        settings = self.config.TRAIN
        for group in self.optimizer.param_groups:
            group["lr"] = settings.LR * min(1.0, (self.step + 1) / settings.WARMUP_STEPS)
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), settings.MAX_GRAD_NORM)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.step += 1

    def save(self) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "step": self.step,
            "loss": self.loss,
        }
        checkpoint.save(self.args.out / "last.pt", self.args.size, self.config.MODEL, state)

    def resume(self, path: Path) -> None:
        content = checkpoint.read(path, self.args.size)
        checkpoint.load_model(self.model, content, path)
        self.optimizer.load_state_dict(content["optimizer"])
        if content["scaler"]:  # empty when it was saved without mixed precision
            self.scaler.load_state_dict(content["scaler"])
        self.step, self.loss = content["step"], content["loss"]
        checkpoint.restore_rng(content)
