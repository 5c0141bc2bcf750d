"""Real spherical harmonics up to degree 3."""

from __future__ import annotations

import torch
from torch import Tensor

TERMS = 16
C0 = 0.28209479177387814
_C1 = 0.4886025119029199
_C2 = (1.0925484305920792, 0.31539156525252005, 0.5462742152960396)
_C3 = (0.5900435899266435, 2.890611442640554, 0.4570457994644658, 0.3731763325901154, 1.445305721320277)


def basis(direction: Tensor) -> Tensor:
    """[..., 3] unit directions to [..., 16] values."""
    x, y, z = direction.unbind(-1)
    xx, yy, zz = x * x, y * y, z * z
    values = [
        torch.full_like(x, C0),
        -_C1 * y,
        _C1 * z,
        -_C1 * x,
        _C2[0] * x * y,
        -_C2[0] * y * z,
        _C2[1] * (2 * zz - xx - yy),
        -_C2[0] * x * z,
        _C2[2] * (xx - yy),
        -_C3[0] * y * (3 * xx - yy),
        _C3[1] * x * y * z,
        -_C3[2] * y * (4 * zz - xx - yy),
        _C3[3] * z * (2 * zz - 3 * xx - 3 * yy),
        -_C3[2] * x * (4 * zz - xx - yy),
        _C3[4] * z * (xx - yy),
        -_C3[0] * x * (xx - 3 * yy),
    ]
    return torch.stack(values, dim=-1)


def colour(coefficients: Tensor, direction: Tensor) -> Tensor:
    """Colour of [gaussians, 16, 3] coefficients seen along [cameras, gaussians, 3] directions."""
    return ((basis(direction).unsqueeze(-1) * coefficients).sum(-2) + 0.5).clamp(min=0)
