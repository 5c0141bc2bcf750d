"""From posed Gaussians to images, for a batch of cameras at once."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from splat import harmonics
from splat.errors import UserError
from splat.linear import compose, transform
from splat.tiles import EMPTY, TILE, blend, nearest

# Low-pass filter: no Gaussian is thinner than about half a pixel on the screen.
_BLUR = 0.3


@dataclass(frozen=True, slots=True)
class Posed:
    """Gaussians in world space, [cameras, gaussians, ...]: each camera may see another pose."""

    means: Tensor
    axes: Tensor  # columns: the principal axes, scaled
    opacity: Tensor  # logits, [gaussians]
    harmonics: Tensor  # [gaussians, 16, 3]


@dataclass(frozen=True, slots=True)
class View:
    """A batch of cameras: world-to-camera matrices, intrinsics in pixels."""

    matrix: Tensor
    focal: Tensor
    centre: Tensor
    position: Tensor
    depth_range: Tensor
    background: Tensor


@dataclass(frozen=True, slots=True)
class Rendered:
    """Images [cameras, 3, height, width] and what the statistics need."""

    image: Tensor
    alpha: Tensor
    means: tuple[Tensor, ...]  # on the screen, in pixels, in groups of cameras; their gradient drives densification
    radii: Tensor  # in pixels, 0: not seen

    def screen_gradient(self) -> Tensor:
        """[cameras, gaussians, 2], after the backward pass."""
        gradients = [means.grad for means in self.means if means.grad is not None]
        return gradients[0] if len(gradients) == 1 else torch.cat(gradients)


class Renderer(Protocol):
    """Renders posed Gaussians from a batch of cameras."""

    def __call__(self, posed: Posed, view: View, height: int, width: int, per_tile: int) -> Rendered: ...


def renderer(backend: str) -> Renderer:
    """The renderer of a name."""
    if backend == "torch":
        return render
    try:
        gsplat = importlib.import_module("gsplat")
    except ImportError:
        raise UserError("--backend gsplat needs the package gsplat: install it, or use --backend torch") from None
    return _Gsplat(gsplat)


def _colours(posed: Posed, view: View) -> Tensor:
    direction = torch.nn.functional.normalize(posed.means - view.position.unsqueeze(1), dim=-1)
    return harmonics.colour(posed.harmonics, direction)


def _projected(posed: Posed, view: View) -> tuple[Tensor, Tensor, Tensor]:
    """Screen means, screen covariances (xx, xy, yy) and depths."""
    turn, shift = view.matrix[:, None, :3, :3], view.matrix[:, None, :3, 3]
    x, y, depth = (transform(turn, posed.means) + shift).unbind(-1)
    z = depth.clamp(min=1e-2)
    focal_x, focal_y = view.focal[:, 0:1], view.focal[:, 1:2]
    means = torch.stack([focal_x * x / z, focal_y * y / z], dim=-1) + view.centre.unsqueeze(1)
    zero = torch.zeros_like(z)
    slope = torch.stack(
        [
            torch.stack([focal_x / z, zero, -focal_x * x / (z * z)], dim=-1),
            torch.stack([zero, focal_y / z, -focal_y * y / (z * z)], dim=-1),
        ],
        dim=-2,
    )
    across, down = compose(slope, compose(turn, posed.axes)).unbind(-2)
    covariance = [(across * across).sum(-1) + _BLUR, (across * down).sum(-1), (down * down).sum(-1) + _BLUR]
    return means, torch.stack(covariance, dim=-1), depth


def _seen_radii(means: Tensor, covariance: Tensor, depth: Tensor, view: View, height: int, width: int) -> Tensor:
    """Three standard deviations in pixels, 0 for what is off the screen."""
    xx, xy, yy = covariance.detach().unbind(-1)
    middle = (xx + yy) / 2
    radii = (3 * (middle + (((xx - yy) / 2) ** 2 + xy * xy).sqrt()).sqrt()).ceil()
    x, y = means.detach().unbind(-1)
    near, far = view.depth_range[:, 0:1], view.depth_range[:, 1:2]
    inside = (x + radii > 0) & (x - radii < width) & (y + radii > 0) & (y - radii < height)
    return torch.where(inside & (depth > near) & (depth < far), radii, torch.zeros_like(radii))


def render(posed: Posed, view: View, height: int, width: int, per_tile: int) -> Rendered:
    """Render in plain PyTorch: tiles of 16×16 pixels, at most `per_tile` Gaussians each."""
    means, covariance, depth = _projected(posed, view)
    if means.requires_grad:
        means.retain_grad()
    radii = _seen_radii(means, covariance, depth, view, height, width)
    xx, xy, yy = covariance.unbind(-1)
    determinant = xx * yy - xy * xy
    log_opacity = torch.nn.functional.logsigmoid(posed.opacity).expand_as(depth)
    columns = [means[..., 0], means[..., 1], yy / determinant, -xy / determinant, xx / determinant, log_opacity]
    packed = torch.cat([torch.stack(columns, dim=-1), _colours(posed, view)], dim=-1)

    tiles_x, tiles_y = -(-width // TILE), -(-height // TILE)
    with torch.no_grad():
        ids, filled = nearest(means, radii, depth, tiles_x, tiles_y, per_tile)
        start = torch.arange(len(means), device=means.device).view(-1, 1, 1) * means.shape[1]
    tiles = _blended(packed.flatten(0, 1), (ids + start).flatten(0, 1), filled.flatten(0, 1), tiles_x, tiles_y)
    pixels = _untiled(tiles, tiles_x, tiles_y)[:, :, :height, :width]
    colour, alpha = pixels[:, :3], pixels[:, 3:]
    image = colour + (1 - alpha) * view.background[:, :, None, None]
    return Rendered(image=image, alpha=alpha, means=(means,), radii=radii)


def _blended(packed: Tensor, ids: Tensor, filled: Tensor, tiles_x: int, tiles_y: int) -> Tensor:
    """Gather each tile's Gaussians and blend them, some tiles at a time."""
    tile = torch.arange(len(ids), device=packed.device) % (tiles_x * tiles_y)
    centres = torch.stack([tile % tiles_x, tile // tiles_x], dim=-1).to(packed.dtype) * TILE + TILE / 2
    at_once = 1024 if packed.is_cuda else 64  # a CPU's caches are smaller
    parts = []
    for first in range(0, len(ids), at_once):
        some = slice(first, first + at_once)
        held = packed.index_select(0, ids[some].flatten()).view(*ids[some].shape, -1)
        log_opacity = torch.where(filled[some], held[..., 5], EMPTY)
        features = torch.cat([held[..., 6:], torch.ones_like(held[..., :1])], dim=-1)
        parts.append(blend(held[..., :2] - centres[some].unsqueeze(1), held[..., 2:5], log_opacity, features))
    return torch.cat(parts)


def _untiled(tiles: Tensor, tiles_x: int, tiles_y: int) -> Tensor:
    channels = tiles.shape[1]
    grid = tiles.view(-1, tiles_y, tiles_x, channels, TILE, TILE)
    return grid.permute(0, 3, 1, 4, 2, 5).reshape(-1, channels, tiles_y * TILE, tiles_x * TILE)


class _Gsplat:
    """The same interface over gsplat's CUDA kernels; one call a camera, since every camera has its own pose."""

    def __init__(self, gsplat: Any) -> None:
        self._rasterize = gsplat.rasterization

    def __call__(self, posed: Posed, view: View, height: int, width: int, per_tile: int) -> Rendered:
        colours = _colours(posed, view)
        covariances = compose(posed.axes, posed.axes.transpose(-1, -2))
        parts = [self._one(posed, view, i, colours[i], covariances[i], height, width) for i in range(len(posed.means))]
        images, alphas, means, radii = zip(*parts, strict=True)
        return Rendered(image=torch.cat(images), alpha=torch.cat(alphas), means=means, radii=torch.cat(radii))

    def _one(
        self, posed: Posed, view: View, i: int, colours: Tensor, covariances: Tensor, height: int, width: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        intrinsics = torch.eye(3, device=colours.device)
        intrinsics[0, 0], intrinsics[1, 1] = view.focal[i]
        intrinsics[:2, 2] = view.centre[i]
        image, alpha, facts = self._rasterize(
            means=posed.means[i],
            quats=None,
            scales=None,
            opacities=posed.opacity.sigmoid(),
            colors=colours,
            viewmats=view.matrix[i : i + 1],
            Ks=intrinsics.unsqueeze(0),
            width=width,
            height=height,
            backgrounds=view.background[i : i + 1],
            covars=covariances,
            eps2d=_BLUR,
            packed=False,
        )
        if facts["means2d"].requires_grad:
            facts["means2d"].retain_grad()
        radii = facts["radii"].float()
        radii = radii.amax(-1) if radii.dim() == 3 else radii
        return image.permute(0, 3, 1, 2), alpha.permute(0, 3, 1, 2), facts["means2d"], radii
