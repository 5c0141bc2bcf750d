"""Lift, splat: image features spread over depth and summed into the cells of the map."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from bev.grid import CELL, COLUMNS, ROWS, X_RANGE, Z_RANGE

DEPTH_BINS = 49  # one a metre, as far as the map reaches
HEIGHT_RANGE = (-4.0, 2.0)  # y points down


class Pool(Protocol):
    """Sums the columns of points [C, P] that share a cell into [C, cells]."""

    def __call__(self, points: Tensor, cells: Tensor, inside: Tensor, count: int) -> Tensor: ...


class _CumsumPool(torch.autograd.Function):
    """The cumulative sum trick: sort points by cell, sum along, and take differences where the cell changes."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, cells: Tensor, inside: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(cells, inside)
        x, ranks = points[:, inside], cells[inside]
        order = ranks.argsort(stable=True)
        x, ranks = x[:, order].cumsum(dim=1), ranks[order]
        last = torch.ones_like(ranks, dtype=torch.bool)
        last[:-1] = ranks[1:] != ranks[:-1]
        x, ranks = x[:, last], ranks[last]
        x = torch.cat([x[:, :1], x[:, 1:] - x[:, :-1]], dim=1)
        grid = x.new_zeros(x.shape[0], count)
        grid[:, ranks] = x
        return grid

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        cells, inside = ctx.saved_tensors
        return grads[0][:, cells] * inside, None, None, None


def cumsum_pool(points: Tensor, cells: Tensor, inside: Tensor, count: int) -> Tensor:
    """Pool by sorting and a cumulative sum, without atomics."""
    pooled: Tensor = _CumsumPool.apply(points, cells, inside, count)  # type: ignore[no-untyped-call]
    return pooled


class LiftSplat(nn.Module):
    """Turns image features into a map of features."""

    frustum: Tensor

    def __init__(
        self, channels_in: int, channels: int, image_size: tuple[int, int], feature_size: tuple[int, int]
    ) -> None:
        super().__init__()
        self.channels = channels
        self.depth_net = nn.Conv2d(channels_in, DEPTH_BINS + channels, 1)
        self.register_buffer("frustum", _frustum(image_size, feature_size), persistent=False)
        self.pool: Pool = cumsum_pool

    def forward(self, features: Tensor, pixel_to_ego: Tensor) -> Tensor:
        batch = features.shape[0]
        out = self.depth_net(features)
        depth, context = out[:, :DEPTH_BINS].softmax(dim=1), out[:, DEPTH_BINS:]
        volume = depth.unsqueeze(1) * context.unsqueeze(2)  # [B, C, D, h, w]
        cells, inside = self.locate(pixel_to_ego)
        # A running sum over the whole batch needs float32, whatever autocast made of the features.
        points = volume.transpose(0, 1).reshape(self.channels, -1).float()
        pooled = self.pool(points, cells, inside, batch * ROWS * COLUMNS)
        return pooled.view(self.channels, batch, ROWS, COLUMNS).transpose(0, 1).contiguous()

    def locate(self, pixel_to_ego: Tensor) -> tuple[Tensor, Tensor]:
        """The cell of every point of the frustum, counted over the batch, and whether it lies in the map at all."""
        # Products and sums instead of a matrix product: that could run in TF32 and move points by a cell.
        turn, position = pixel_to_ego[:, None, None, None, :, :3], pixel_to_ego[:, None, None, None, :, 3]
        x, y, z = ((turn * self.frustum[..., None, :]).sum(-1) + position).unbind(-1)
        column = ((x - X_RANGE[0]) / CELL).floor().long()
        row = ((z - Z_RANGE[0]) / CELL).floor().long()
        inside = (column >= 0) & (column < COLUMNS) & (row >= 0) & (row < ROWS)
        inside &= (y > HEIGHT_RANGE[0]) & (y < HEIGHT_RANGE[1])
        sample = torch.arange(x.shape[0], device=x.device).view(-1, 1, 1, 1)
        cells = (sample * ROWS + row.clamp(0, ROWS - 1)) * COLUMNS + column.clamp(0, COLUMNS - 1)
        return cells.flatten(), inside.flatten()


def _frustum(image_size: tuple[int, int], feature_size: tuple[int, int]) -> Tensor:
    """[D, h, w, 3]: pixel coordinates times depth, and depth."""
    depth = torch.arange(DEPTH_BINS, dtype=torch.float32) + Z_RANGE[0] + 0.5
    v = torch.linspace(0, image_size[0] - 1, feature_size[0])
    u = torch.linspace(0, image_size[1] - 1, feature_size[1])
    d, v, u = torch.meshgrid(depth, v, u, indexing="ij")
    return torch.stack([u * d, v * d, d], dim=-1)
