"""Metrics on held-out cameras."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.data import DataLoader

from splat.config import Preset
from splat.dataset import AvatarFrames, only, stacked
from splat.gaussians import GaussianModel
from splat.logs import Writer
from splat.losses import psnr, ssim
from splat.mesh import Head
from splat.perceptual import PerceptualNet
from splat.render import Renderer


@torch.no_grad()
def evaluate(
    model: GaussianModel,
    mesh: Head,
    render: Renderer,
    folder: Path,
    preset: Preset,
    writer: Writer,
    step: int,
    vis_images: int,
) -> dict[str, float]:
    """Mean metrics over the test split; the first pictures go to TensorBoard."""
    device = model.binding.device
    loader = DataLoader(AvatarFrames(folder, "test", preset.resolution), batch_size=1, collate_fn=only)
    perceptual = PerceptualNet(preset.perceptual_width).to(device)
    totals = {"l1": 0.0, "psnr": 0.0, "ssim": 0.0, "perceptual": 0.0}
    for i, sample in enumerate(loader):
        batch = stacked([sample.to(device)])
        posed = model.posed(mesh.posed(batch.expression, batch.rotation, batch.translation))
        image = render(posed, batch.view, preset.resolution, preset.resolution, preset.per_tile).image.clamp(0, 1)
        totals["l1"] += (image - batch.image).abs().mean().item()
        totals["psnr"] += psnr(image, batch.image).item()
        totals["ssim"] += ssim(image, batch.image).item()
        totals["perceptual"] += perceptual(image, batch.image).item()
        if i < vis_images:
            writer.add_image(f"test/{i}", torch.cat([image[0], batch.image[0]], dim=2).cpu(), step)
    means = {name: total / len(loader) for name, total in totals.items()}
    for name, value in means.items():
        writer.add_scalar(f"test/{name}", value, step)
    return means
