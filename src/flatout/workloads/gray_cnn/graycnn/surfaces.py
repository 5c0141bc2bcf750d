"""Draws grey pictures of a metal surface, clean or with one of seven faults."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

Plane = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]


def draw_surface(label: int, pixels: int, rng: np.random.Generator) -> Pixels:
    """One picture of the class `CLASSES[label]`, `pixels` high and wide; its fault may be faint."""
    light = 120 + rng.uniform(-25, 25) + 12 * _clouds(pixels, 2, rng)
    grain = rng.normal(0, 6, (pixels, pixels))
    fault = rng.uniform(0.1, 1) * _DRAW[CLASSES[label]](pixels, rng)
    surface = light + grain + fault
    return surface.clip(0, 255).astype(np.uint8)


def _clouds(pixels: int, cells: int, rng: np.random.Generator) -> Plane:
    """Smooth noise of about unit height with `cells` hills across, stretched from a coarse grid."""
    coarse = rng.normal(0, 1, (cells + 2, cells + 2)).astype(np.float32)
    return _stretched(coarse, pixels, pixels)


def _stretched(coarse: Plane, height: int, width: int) -> Plane:
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def _clean(pixels: int, rng: np.random.Generator) -> Plane:
    return np.zeros((pixels, pixels), np.float32)


def _scratch(pixels: int, rng: np.random.Generator) -> Plane:
    """A few long bright lines in nearly one direction."""
    sheet = Image.new("L", (pixels, pixels))
    pen = ImageDraw.Draw(sheet)
    angle = rng.uniform(0, np.pi)
    for _ in range(rng.integers(2, 5)):
        x, y = rng.uniform(0.2, 0.8, 2) * pixels
        turn = angle + rng.normal(0, 0.1)
        dx, dy = np.cos(turn) * pixels * 0.6, np.sin(turn) * pixels * 0.6
        pen.line((x - dx, y - dy, x + dx, y + dy), fill=int(rng.integers(150, 255)), width=max(1, pixels // 48))
    return np.asarray(sheet, np.float32) * 0.45


def _inclusion(pixels: int, rng: np.random.Generator) -> Plane:
    """Dark, long drops of slag."""
    sheet = Image.new("L", (pixels, pixels))
    pen = ImageDraw.Draw(sheet)
    for _ in range(rng.integers(2, 5)):
        x, y = rng.uniform(0.15, 0.85, 2) * pixels
        width, height = rng.uniform(0.03, 0.06) * pixels, rng.uniform(0.12, 0.3) * pixels
        pen.ellipse((x - width, y - height, x + width, y + height), fill=200)
    return -np.asarray(sheet, np.float32) * 0.4


def _patches(pixels: int, rng: np.random.Generator) -> Plane:
    """Wide stains with hard edges."""
    return np.where(_clouds(pixels, 3, rng) > 0.25, -45, 0).astype(np.float32)


def _pitting(pixels: int, rng: np.random.Generator) -> Plane:
    """Many small holes."""
    plane = np.zeros((pixels, pixels), np.float32)
    rows, columns = rng.integers(1, pixels - 1, (2, int(rng.integers(40, 70))))
    span = max(1, pixels // 48)
    for row, column in zip(rows, columns, strict=True):
        plane[row - span : row + span, column - span : column + span] = -80
    return plane


def _scale(pixels: int, rng: np.random.Generator) -> Plane:
    """Rolled-in scale: rough streaks along one axis."""
    coarse = rng.normal(0, 1, (max(4, pixels // 3), max(2, pixels // 16))).astype(np.float32)
    return 40 * _stretched(coarse, pixels, pixels)


def _crazing(pixels: int, rng: np.random.Generator) -> Plane:
    """A net of fine cracks: where smooth noise crosses zero."""
    cracks = np.minimum(np.abs(_clouds(pixels, 6, rng)), np.abs(_clouds(pixels, 6, rng)))
    return np.where(cracks < 0.12, -70, 0).astype(np.float32)


def _ripple(pixels: int, rng: np.random.Generator) -> Plane:
    """Waves left by a shaking roll."""
    rows, columns = np.mgrid[0:pixels, 0:pixels] / pixels
    angle, waves = rng.uniform(-0.3, 0.3), rng.uniform(4, 7)
    phase = 2 * np.pi * (waves * (rows * np.cos(angle) + columns * np.sin(angle)) + rng.uniform())
    return np.asarray(28 * np.sin(phase), np.float32)


_DRAW: dict[str, Callable[[int, np.random.Generator], Plane]] = {
    "clean": _clean,
    "scratch": _scratch,
    "inclusion": _inclusion,
    "patches": _patches,
    "pitting": _pitting,
    "scale": _scale,
    "crazing": _crazing,
    "ripple": _ripple,
}
CLASSES = tuple(_DRAW)
