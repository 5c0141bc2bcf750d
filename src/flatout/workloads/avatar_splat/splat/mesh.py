"""A head-like mesh with blend shapes and two joints, and the frames of its faces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splat.config import EXPRESSIONS
from splat.linear import axis_angle_matrix, transform

Floats = NDArray[np.float64]

# Where each blend shape acts on the unit sphere (y up, z towards the viewer) and where it pushes the skin.
_BUMPS = [
    ((0.0, -0.45, 0.9), (0.0, -0.10, 0.02)),  # mouth open
    ((0.45, -0.4, 0.8), (0.05, 0.06, 0.0)),  # smile, left
    ((-0.45, -0.4, 0.8), (-0.05, 0.06, 0.0)),  # smile, right
    ((0.35, 0.45, 0.85), (0.0, 0.07, 0.02)),  # brow, left
    ((-0.35, 0.45, 0.85), (0.0, 0.07, 0.02)),  # brow, right
    ((0.7, -0.1, 0.6), (0.07, 0.0, 0.03)),  # cheek, left
    ((-0.7, -0.1, 0.6), (-0.07, 0.0, 0.03)),  # cheek, right
    ((0.0, -0.85, 0.5), (0.0, -0.06, 0.06)),  # chin
]
_PIVOTS = [(0.0, -0.9, -0.1), (0.0, -0.2, 0.1)]  # neck, jaw


@dataclass(frozen=True, slots=True)
class Frames:
    """Per face: its centre, its orientation and its size, [cameras, faces, ...]."""

    centre: Tensor
    rotation: Tensor
    size: Tensor


@dataclass(frozen=True, slots=True)
class Head:
    """The template and what moves it."""

    template: Tensor
    faces: Tensor
    shapes: Tensor
    skin: Tensor
    pivots: Tensor

    def posed(self, expression: Tensor, rotation: Tensor, translation: Tensor) -> Frames:
        """Face frames of [cameras, ...] expressions, joint rotations and translations."""
        vertices = self.template + torch.einsum("ce,evd->cvd", expression, self.shapes)
        turns = axis_angle_matrix(rotation)
        for joint in reversed(range(len(self.pivots))):  # the jaw first: the neck carries it
            pivot = self.pivots[joint]
            turned = transform(turns[:, joint].unsqueeze(1), vertices - pivot) + pivot
            vertices = vertices + self.skin[joint].unsqueeze(-1) * (turned - vertices)
        return face_frames(vertices + translation.unsqueeze(1), self.faces)


def face_frames(vertices: Tensor, faces: Tensor) -> Frames:
    """Frames of the faces of [cameras, vertices, 3]."""
    corner, along, across = (vertices[:, faces[:, i]] for i in range(3))
    edge = along - corner
    tangent = torch.nn.functional.normalize(edge, dim=-1)
    normal = torch.nn.functional.normalize(torch.linalg.cross(tangent, across - corner), dim=-1)
    bitangent = torch.linalg.cross(normal, tangent)
    height = ((across - corner) * bitangent).sum(-1).abs()
    return Frames(
        centre=(corner + along + across) / 3,
        rotation=torch.stack([tangent, bitangent, normal], dim=-1),
        size=(edge.norm(dim=-1) + height) / 2,
    )


def head(level: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Head:
    """The head mesh with 20·4^level faces."""
    sphere, faces = _icosphere(level)
    template = _head_shape(sphere)

    def tensor(values: Floats) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    return Head(
        template=tensor(template),
        faces=torch.tensor(faces, device=device),
        shapes=tensor(_blend_shapes(sphere)),
        skin=tensor(_skin_weights(sphere)),
        pivots=tensor(np.array(_PIVOTS)),
    )


def _head_shape(sphere: Floats) -> Floats:
    x, y, z = sphere.T
    nose = np.exp(-(x**2 + (y + 0.05) ** 2) / 0.02) * (z > 0)
    narrow = 1 - 0.25 * np.clip(-y, 0, 1)  # towards the chin
    return np.stack([0.78 * narrow * x, 1.05 * y, 0.9 * narrow * z + 0.15 * nose], axis=1)


def _blend_shapes(sphere: Floats) -> Floats:
    shapes = np.zeros((EXPRESSIONS, len(sphere), 3))
    for i, (place, push) in enumerate(_BUMPS):
        centre = np.array(place) / np.linalg.norm(place)
        near = np.exp(-((sphere - centre) ** 2).sum(1) / 0.15)
        shapes[i] = near[:, None] * np.array(push)
    return shapes


def _skin_weights(sphere: Floats) -> Floats:
    _, y, z = sphere.T
    neck = 1 / (1 + np.exp(-(y + 0.7) / 0.1))
    jaw = 1 / (1 + np.exp((y + 0.35) / 0.08)) / (1 + np.exp(-z / 0.15))
    return np.stack([neck, jaw])


def _icosphere(level: int) -> tuple[Floats, NDArray[np.int64]]:
    golden = (1 + 5**0.5) / 2
    corners = [
        *((-1, golden, 0), (1, golden, 0), (-1, -golden, 0), (1, -golden, 0)),
        *((0, -1, golden), (0, 1, golden), (0, -1, -golden), (0, 1, -golden)),
        *((golden, 0, -1), (golden, 0, 1), (-golden, 0, -1), (-golden, 0, 1)),
    ]
    vertices = [np.array(c, dtype=np.float64) / np.linalg.norm(c) for c in corners]
    faces = [
        *((0, 11, 5), (0, 5, 1), (0, 1, 7), (0, 7, 10), (0, 10, 11)),
        *((1, 5, 9), (5, 11, 4), (11, 10, 2), (10, 7, 6), (7, 1, 8)),
        *((3, 9, 4), (3, 4, 2), (3, 2, 6), (3, 6, 8), (3, 8, 9)),
        *((4, 9, 5), (2, 4, 11), (6, 2, 10), (8, 6, 7), (9, 8, 1)),
    ]
    for _ in range(level):
        faces = _subdivided(vertices, faces)
    return np.stack(vertices), np.array(faces, dtype=np.int64)


def _subdivided(vertices: list[Floats], faces: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    middles: dict[tuple[int, int], int] = {}

    def middle(a: int, b: int) -> int:
        key = (min(a, b), max(a, b))
        if key not in middles:
            point = vertices[a] + vertices[b]
            vertices.append(point / np.linalg.norm(point))
            middles[key] = len(vertices) - 1
        return middles[key]

    finer = []
    for a, b, c in faces:
        ab, bc, ca = middle(a, b), middle(b, c), middle(c, a)
        finer += [(a, ab, ca), (b, bc, ab), (c, ca, bc), (ab, bc, ca)]
    return finer
