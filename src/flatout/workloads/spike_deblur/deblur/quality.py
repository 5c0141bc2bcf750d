"""The training loss and the two measures of a restored frame."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def charbonnier(output: Tensor, target: Tensor) -> Tensor:
    return torch.sqrt((output - target) ** 2 + 1e-6).mean()


def edge_loss(output: Tensor, target: Tensor) -> Tensor:
    """Differences between neighbouring pixels should agree as well."""
    error = output - target
    return error.diff(dim=-1).abs().mean() + error.diff(dim=-2).abs().mean()


def psnr(output: Tensor, target: Tensor) -> float:
    """Mean over the images, in dB; both (images, 3, height, width) in 0..1."""
    error = ((output - target) ** 2).mean(dim=(1, 2, 3)).clamp(min=1e-10)
    return float((-10 * torch.log10(error)).mean())


def ssim(output: Tensor, target: Tensor) -> float:
    """Mean structural similarity with a Gaussian window of 11 pixels."""
    place = torch.arange(11, device=output.device, dtype=output.dtype) - 5
    line = torch.exp(-(place**2) / (2 * 1.5**2))
    line = line / line.sum()
    kernel = (line[:, None] * line).expand(3, 1, 11, 11)

    def blurred(image: Tensor) -> Tensor:
        return F.conv2d(image, kernel, groups=3)

    mean_out, mean_target = blurred(output), blurred(target)
    var_out = blurred(output**2) - mean_out**2
    var_target = blurred(target**2) - mean_target**2
    covariance = blurred(output * target) - mean_out * mean_target
    c1, c2 = 0.01**2, 0.03**2
    luminance = (2 * mean_out * mean_target + c1) / (mean_out**2 + mean_target**2 + c1)
    structure = (2 * covariance + c2) / (var_out + var_target + c2)
    return float((luminance * structure).mean())
