"""Photometric losses and image metrics."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def face_weighted_l1(image: Tensor, target: Tensor, face: Tensor, weight: float) -> Tensor:
    """Mean absolute error in which the face's pixels weigh more."""
    error = (image - target).abs()
    mask = face.expand_as(error)
    error[mask] = error[mask] * weight
    return error.mean()


def gaussian_window(size: int = 11, sigma: float = 1.5, channels: int = 3) -> Tensor:
    """The window of SSIM as a depthwise convolution kernel."""
    line = torch.tensor([math.exp(-((x - size // 2) ** 2) / (2 * sigma**2)) for x in range(size)])
    line = line / line.sum()
    return torch.outer(line, line).expand(channels, 1, size, size).contiguous()


def ssim(image: Tensor, target: Tensor) -> Tensor:
    """Mean structural similarity of [n, 3, h, w] images in 0..1."""
    window = gaussian_window().to(image.device)
    return windowed_ssim(image, target, window)


def windowed_ssim(image: Tensor, target: Tensor, window: Tensor) -> Tensor:
    """Structural similarity with a given window."""
    channels, pad = image.shape[1], window.shape[-1] // 2

    def local(values: Tensor) -> Tensor:
        return F.conv2d(values, window, padding=pad, groups=channels)

    mean_a, mean_b = local(image), local(target)
    var_a = local(image * image) - mean_a * mean_a
    var_b = local(target * target) - mean_b * mean_b
    covariance = local(image * target) - mean_a * mean_b
    luminance = (2 * mean_a * mean_b + 0.01**2) / (mean_a * mean_a + mean_b * mean_b + 0.01**2)
    contrast = (2 * covariance + 0.03**2) / (var_a + var_b + 0.03**2)
    return (luminance * contrast).mean()


def psnr(image: Tensor, target: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB of images in 0..1."""
    return -10 * torch.log10((image - target).square().mean())


def outside(values: Tensor, limit: float) -> Tensor:
    """Mean of what exceeds a limit."""
    return F.relu(values - limit).mean()
