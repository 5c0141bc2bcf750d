"""The parts of a step that must not wait for the device."""

from __future__ import annotations

import torch
from torch import Tensor

from splat import config
from splat.dataset import CameraBatch
from splat.densify import ScreenStats
from splat.errors import UserError
from splat.gaussians import GaussianModel
from splat.logs import Writer
from splat.losses import gaussian_window, psnr, windowed_ssim
from splat.objective import total
from splat.perceptual import PerceptualNet
from splat.render import Rendered

_NAMES = ("loss", "l1", "ssim", "perceptual", "psnr", "visible")


class SteadyStats(ScreenStats):
    """The same statistics in static shapes: what was not seen adds zero."""

    def add(self, rendered: Rendered, resolution: int) -> Tensor:
        """Add one step's cameras; returns how many Gaussians they saw, on the device."""
        pull = rendered.screen_gradient().norm(dim=-1) * (resolution / 2)
        visible = rendered.radii > 0
        self.max_radii = torch.maximum(self.max_radii, rendered.radii.amax(0))
        self.gradient += torch.where(visible, pull, 0.0).sum(0)
        self.seen += visible.sum(0)
        return visible.sum()


class Objective:
    """The project's objective with its constants made once."""

    def __init__(self, perceptual: PerceptualNet, device: torch.device, reduced: bool) -> None:
        self._perceptual, self._reduced, self._device = perceptual, reduced and device.type == "cuda", device
        self.window = gaussian_window().to(device)

    def __call__(self, rendered: Rendered, batch: CameraBatch, model: GaussianModel) -> dict[str, Tensor]:
        error = (rendered.image - batch.image).abs()
        l1 = torch.where(batch.face, error * config.FACE_WEIGHT, error).mean()
        similarity = windowed_ssim(rendered.image, batch.image, self.window)
        distance = self.distance(rendered.image, batch.image)
        loss = total(l1, similarity, distance, rendered, batch, model)
        quality = psnr(rendered.image.detach(), batch.image)
        return {"loss": loss, "l1": l1, "ssim": similarity, "perceptual": distance, "psnr": quality}

    def distance(self, image: Tensor, target: Tensor) -> Tensor:
        """Perceptual distance, in bfloat16 where that is allowed."""
        if not self._reduced:
            return self._measured(image, target)
        image, target = (each.contiguous(memory_format=torch.channels_last) for each in (image, target))
        with torch.autocast(self._device.type, dtype=torch.bfloat16):
            return self._measured(image, target).float()

    def _measured(self, image: Tensor, target: Tensor) -> Tensor:
        distance: Tensor = self._perceptual(image, target)
        return distance


class ScalarLog:
    """Keeps each step's figures on the device and writes them some dozens of steps at a time."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._pending: list[tuple[int, Tensor, int, float]] = []
        self.losses: list[float] = []

    def add(self, step: int, figures: dict[str, Tensor], gaussians: int, rate: float) -> None:
        row = torch.stack([figures[name].detach().float() for name in _NAMES])
        self._pending.append((step, row, gaussians, rate))

    def flush(self) -> None:
        """Wait for the device once and write what is pending."""
        if not self._pending:
            return
        rows = torch.stack([row for _, row, _, _ in self._pending]).tolist()
        for (step, _, gaussians, rate), row in zip(self._pending, rows, strict=True):
            if not abs(row[0]) < float("inf"):
                raise UserError(f"the loss became infinite or NaN at step {step}: try a smaller --lr-scale")
            self.losses.append(row[0])
            for name, value in zip(_NAMES, row, strict=True):
                self._writer.add_scalar(f"train/{name}", value, step)
            self._writer.add_scalar("train/gaussians", gaussians, step)
            self._writer.add_scalar("train/xyz_lr", rate, step)
        self._pending.clear()
