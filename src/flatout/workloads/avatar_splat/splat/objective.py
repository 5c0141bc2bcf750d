"""What training minimises."""

from __future__ import annotations

from torch import Tensor

from splat import config
from splat.dataset import CameraBatch
from splat.gaussians import GaussianModel
from splat.losses import face_weighted_l1, outside, psnr, ssim
from splat.perceptual import PerceptualNet
from splat.render import Rendered


def objective(
    rendered: Rendered, batch: CameraBatch, model: GaussianModel, perceptual: PerceptualNet
) -> dict[str, Tensor]:
    """The loss and its parts."""
    l1 = face_weighted_l1(rendered.image, batch.image, batch.face, config.FACE_WEIGHT)
    similarity = ssim(rendered.image, batch.image)
    distance = perceptual(rendered.image, batch.image)
    loss = total(l1, similarity, distance, rendered, batch, model)
    quality = psnr(rendered.image.detach(), batch.image)
    return {"loss": loss, "l1": l1, "ssim": similarity, "perceptual": distance, "psnr": quality}


def total(
    l1: Tensor, similarity: Tensor, distance: Tensor, rendered: Rendered, batch: CameraBatch, model: GaussianModel
) -> Tensor:
    """Weighted sum of the photometric parts, the silhouette, and what keeps Gaussians on their faces."""
    photometric = (1 - config.SSIM_WEIGHT) * l1 + config.SSIM_WEIGHT * (1 - similarity)
    silhouette = (rendered.alpha - batch.alpha).abs().mean()
    offsets = outside(model["xyz"].norm(dim=-1), 1.0)
    sizes = outside(model.scales, 0.6)
    return (
        photometric
        + config.PERCEPTUAL_WEIGHT * distance
        + config.SILHOUETTE_WEIGHT * silhouette
        + config.OFFSET_WEIGHT * offsets
        + config.SIZE_WEIGHT * sizes
    )
