"""Evaluation that keeps its frames and its network, and lets pictures be compressed beside the training."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from splat.config import Preset
from splat.dataset import AvatarFrames, CameraBatch
from splat.gaussians import GaussianModel
from splat.logs import Writer
from splat.losses import psnr, windowed_ssim
from splat.mesh import Head
from splat.perceptual import PerceptualNet
from splat.render import Renderer
from splat_expert.loading import Unpacker, make_loader

_NAMES = ("l1", "psnr", "ssim", "perceptual")


class Evaluator:
    """Mean metrics over the test split."""

    def __init__(
        self, frames: AvatarFrames, mesh: Head, render: Renderer, preset: Preset, writer: Writer, vis_images: int
    ) -> None:
        self._frames, self._mesh, self._render, self._preset = frames, mesh, render, preset
        self._writer, self._vis_images = writer, vis_images
        self._batches: list[CameraBatch] = []
        self._drawing = ThreadPoolExecutor(1)
        self._drawn: list[Future[None]] = []

    def _test_batches(self, device: torch.device) -> list[CameraBatch]:
        """The test frames on the device; read once, they are few."""
        if not self._batches:
            unpack = Unpacker(device)
            self._batches = [unpack([sample]) for sample in make_loader(self._frames, None, device)]
        return self._batches

    @torch.no_grad()
    def __call__(self, model: GaussianModel, perceptual: PerceptualNet, window: Tensor, step: int) -> dict[str, float]:
        side, rows = self._preset.resolution, []
        for i, batch in enumerate(self._test_batches(model.binding.device)):
            posed = model.posed(self._mesh.posed(batch.expression, batch.rotation, batch.translation))
            image = self._render(posed, batch.view, side, side, self._preset.per_tile).image.clamp(0, 1)
            l1 = (image - batch.image).abs().mean()
            similarity = windowed_ssim(image, batch.image, window)
            rows.append(torch.stack([l1, psnr(image, batch.image), similarity, perceptual(image, batch.image)]))
            if i < self._vis_images:
                picture = torch.cat([image[0], batch.image[0]], dim=2).cpu()
                self._drawn.append(self._drawing.submit(self._writer.add_image, f"test/{i}", picture, step))
        # Added up as Python floats, frame by frame, so that the means are the project's to the last bit.
        means = {name: sum(column) / len(rows) for name, column in zip(_NAMES, _columns(rows), strict=True)}
        for name, value in means.items():
            self._writer.add_scalar(f"test/{name}", value, step)
        return means

    def close(self) -> None:
        """Wait for the pictures."""
        self._drawing.shutdown()
        for drawn in self._drawn:
            drawn.result()


def _columns(rows: list[Tensor]) -> list[list[float]]:
    columns: list[list[float]] = torch.stack(rows, dim=1).tolist()
    return columns
