"""Tiles of 16×16 pixels: which Gaussians each tile sees, and their blending front to back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.amp import custom_bwd, custom_fwd
from torch.autograd import Function

TILE = 16
PIXELS = TILE * TILE
OPAQUE = 0.99
# log of the opacity of a slot that holds no Gaussian: exp() of it is 0 in every precision.
EMPTY = -1e4


def nearest(means: Tensor, radii: Tensor, depths: Tensor, columns: int, rows: int, count: int) -> tuple[Tensor, Tensor]:
    """The `count` nearest Gaussians that touch each tile, front to back.

    Returns [cameras, tiles, count] indices and which of these slots are filled. Sorting once and counting touches along
    the sorted order gives static shapes: the k-th Gaussian of a tile is where the running count first reaches k.
    """
    order = depths.argsort(dim=1, stable=True)
    x, y = (means[..., i].gather(1, order).unsqueeze(1) for i in range(2))
    radius = radii.gather(1, order).unsqueeze(1)
    column = torch.arange(columns, device=means.device).view(1, -1, 1)
    row = torch.arange(rows, device=means.device).view(1, -1, 1)
    across = ((x - radius) / TILE < column + 1) & ((x + radius) / TILE >= column) & (radius > 0)
    down = ((y - radius) / TILE < row + 1) & ((y + radius) / TILE >= row)
    touches = (down.unsqueeze(2) & across.unsqueeze(1)).flatten(1, 2)
    running = touches.cumsum(-1, dtype=torch.int32)
    wanted = torch.arange(1, count + 1, dtype=torch.int32, device=means.device)
    place = torch.searchsorted(running, wanted.expand(*running.shape[:2], count).contiguous())
    filled = place < running.shape[-1]
    place = place.clamp(max=running.shape[-1] - 1)
    return order.gather(1, place.flatten(1)).view_as(place), filled


def _log_alpha(mean: Tensor, conic: Tensor, log_opacity: Tensor) -> Tensor:
    """Log of each Gaussian's opacity at each pixel, [tiles, slots, 16, 16].

    The quadratic form is taken apart so that only the last two operations are as large as the result.
    """
    offset = torch.arange(TILE, dtype=mean.dtype, device=mean.device) - (TILE - 1) / 2
    dx, dy = offset - mean[..., 0:1], offset - mean[..., 1:2]
    a, b, c = (conic[..., i : i + 1] for i in range(3))
    column = -0.5 * a * dx * dx
    row = log_opacity.unsqueeze(-1) - 0.5 * c * dy * dy
    cross = -b * dy
    return torch.addcmul(row.unsqueeze(-1), cross.unsqueeze(-1), dx.unsqueeze(-2)).add_(column.unsqueeze(-2))


def _weights(alpha: Tensor, passed: Tensor) -> Tensor:
    """What each Gaussian adds to a pixel: its opacity times what those before it let pass."""
    weights = alpha.clone()
    weights[:, 1:] *= passed[:, :-1]
    return weights


def _running_sum(values: Tensor) -> Tensor:
    """Cumulative sum over the slots."""
    if not (values.is_cuda and torch.are_deterministic_algorithms_enabled()):
        return values.cumsum(1)
    shift = 1  # CUDA's cumsum refuses to run deterministically: log₂ K shifted additions instead
    while shift < values.shape[1]:
        values = torch.cat([values[:, :shift], values[:, shift:] + values[:, :-shift]], dim=1)
        shift *= 2
    return values


def _monomials(like: Tensor) -> Tensor:
    """1, x, y, x², xy, y² of the pixels around a tile's centre, [256, 6]."""
    offset = torch.arange(TILE, dtype=like.dtype, device=like.device) - (TILE - 1) / 2
    y, x = offset.repeat_interleave(TILE), offset.repeat(TILE)
    return torch.stack([torch.ones_like(x), x, y, x * x, x * y, y * y], dim=1)


class _Blend(Function):
    """Front-to-back blending with a backward of its own: autograd would keep a dozen tensors of pixels × Gaussians."""

    @staticmethod
    @custom_fwd(device_type="cuda", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, mean: Tensor, conic: Tensor, log_opacity: Tensor, features: Tensor) -> Tensor:
        alpha = _log_alpha(mean, conic, log_opacity).flatten(2).exp_().clamp_(max=OPAQUE)
        passed = (1 - alpha).cumprod(1)
        ctx.save_for_backward(mean, conic, features, alpha, passed)
        return features.transpose(1, 2) @ _weights(alpha, passed)

    @staticmethod
    @custom_bwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> Any:
        mean, conic, features, alpha, passed = ctx.saved_tensors
        weights = _weights(alpha, passed)
        for_features = weights @ gradient.transpose(1, 2)
        gain = (features @ gradient).mul_(weights)
        behind = gain.sum(1, keepdim=True) - _running_sum(gain)
        # d/d log α: the Gaussian's own share less what it hides of those behind it.
        for_log = gain.sub_(behind.mul_(alpha).div_(1 - alpha)).masked_fill_(alpha >= OPAQUE, 0)
        moments = for_log @ _monomials(for_log)
        return *_shape_gradients(moments, mean, conic), for_features


def _shape_gradients(moments: Tensor, mean: Tensor, conic: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of mean, conic and log opacity from the moments about the tile's centre."""
    one, x, y, xx, xy, yy = moments.unbind(-1)
    mx, my = mean.unbind(-1)
    a, b, c = conic.unbind(-1)
    dx, dy = x - mx * one, y - my * one
    dxx = xx - 2 * mx * x + mx * mx * one
    dxy = xy - mx * y - my * x + mx * my * one
    dyy = yy - 2 * my * y + my * my * one
    for_mean = torch.stack([a * dx + b * dy, b * dx + c * dy], dim=-1)
    for_conic = torch.stack([-0.5 * dxx, -dxy, -0.5 * dyy], dim=-1)
    return for_mean, for_conic, one


def blend(mean: Tensor, conic: Tensor, log_opacity: Tensor, features: Tensor) -> Tensor:
    """Blend [tiles, slots, ...] Gaussians, means relative to the tile's centre, into [tiles, features, 256] pixels."""
    blended: Tensor = _Blend.apply(mean, conic, log_opacity, features)  # type: ignore[no-untyped-call]
    return blended
