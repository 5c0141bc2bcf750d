"""Products of many small matrices.

Written as multiply-and-sum: a 3×3 product gains nothing from a GEMM, and positions must keep all their bits when
reduced precision is allowed for matrix products.
"""

from __future__ import annotations

import torch
from torch import Tensor


def transform(matrix: Tensor, vector: Tensor) -> Tensor:
    """[..., n, m] times [..., m]."""
    return (matrix * vector.unsqueeze(-2)).sum(-1)


def compose(left: Tensor, right: Tensor) -> Tensor:
    """[..., n, m] times [..., m, k]."""
    return (left.unsqueeze(-1) * right.unsqueeze(-3)).sum(-2)


def quaternion_matrix(quaternion: Tensor) -> Tensor:
    """Rotation matrices of quaternions (w, x, y, z) of any length."""
    w, x, y, z = torch.nn.functional.normalize(quaternion, dim=-1).unbind(-1)
    rows = [
        torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], dim=-1),
        torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], dim=-1),
        torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], dim=-1),
    ]
    return torch.stack(rows, dim=-2)


def axis_angle_matrix(rotation: Tensor) -> Tensor:
    """Rotation matrices of axis-angle vectors."""
    angle = rotation.norm(dim=-1, keepdim=True)
    half = angle / 2
    # sin(a/2)/a has the limit 1/2 where the angle vanishes.
    sine = torch.where(angle > 1e-6, half.sin() / angle.clamp(min=1e-6), torch.full_like(angle, 0.5))
    return quaternion_matrix(torch.cat([half.cos(), rotation * sine], dim=-1))
