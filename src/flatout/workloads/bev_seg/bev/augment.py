"""Augmentation of one sample: geometry through the camera matrix, colour in floating point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

Image32 = npt.NDArray[np.float32]

MEAN = np.array([123.675, 116.28, 103.53])
STD = np.array([58.395, 57.12, 57.375])
GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the network's window lies in the resized image."""

    scale: float = 1.0
    left: float = 0.0  # of the room that the resize leaves, 0 to 1
    top: float = 0.0
    flip: bool = False


@dataclass(frozen=True, slots=True)
class Distortion:
    """Colour changes, as in PhotoMetricDistortion."""

    brightness: float = 0.0
    contrast: float = 1.0
    saturation: float = 1.0
    hue: float = 0.0  # degrees


def draw_placement(rng: np.random.Generator) -> Placement:
    """A random window."""
    return Placement(float(rng.uniform(1.0, 1.15)), float(rng.random()), float(rng.random()), bool(rng.random() < 0.5))


def draw_distortion(rng: np.random.Generator) -> Distortion:
    """Random colours, each change in half of the images."""
    change = rng.random(4) < 0.5
    brightness, hue = rng.uniform(-32, 32), rng.uniform(-18, 18)
    contrast, saturation = rng.uniform(0.5, 1.5, 2)
    return Distortion(
        brightness=float(brightness) if change[0] else 0.0,
        contrast=float(contrast) if change[1] else 1.0,
        saturation=float(saturation) if change[2] else 1.0,
        hue=float(hue) if change[3] else 0.0,
    )


def place(
    image: Image.Image, intrinsics: npt.NDArray[np.float64], size: tuple[int, int], placement: Placement
) -> tuple[Image.Image, npt.NDArray[np.float64]]:
    """Resize, crop and flip the image to size (height, width), and the camera matrix with it."""
    height, width = size
    tall, wide = round(height * placement.scale), round(width * placement.scale)
    left, top = round((wide - width) * placement.left), round((tall - height) * placement.top)
    moved = np.array([[wide / image.width, 0, -left], [0, tall / image.height, -top], [0, 0, 1]]) @ intrinsics
    image = image.resize((wide, tall), Image.Resampling.BICUBIC).crop((left, top, left + width, top + height))
    if placement.flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        moved = np.array([[-1, 0, width - 1], [0, 1, 0], [0, 0, 1]]) @ moved
    return image, moved


def distort(image: Image32, distortion: Distortion) -> Image32:
    """Change the colours of [height, width, 3] in 0 to 255."""
    if distortion.brightness != 0:
        image = np.clip(image + np.float32(distortion.brightness), 0, 255)
    if distortion.contrast != 1:
        image = np.clip(image * np.float32(distortion.contrast), 0, 255)
    if distortion.saturation != 1:
        grey = (image * GREY).sum(axis=-1, keepdims=True)
        image = np.clip(grey + (image - grey) * np.float32(distortion.saturation), 0, 255)
    if distortion.hue != 0:
        hue, saturation, value = _to_hsv(image)
        image = _from_hsv((hue + np.float32(distortion.hue / 60)) % np.float32(6), saturation, value)
    return image


def _to_hsv(image: Image32) -> tuple[Image32, Image32, Image32]:
    red, green, blue = image[..., 0], image[..., 1], image[..., 2]
    value = image.max(axis=-1)
    span = value - image.min(axis=-1)
    safe = np.where(span > 0, span, np.float32(1))
    hue = np.where(
        value == red,
        (green - blue) / safe % np.float32(6),
        np.where(value == green, (blue - red) / safe + np.float32(2), (red - green) / safe + np.float32(4)),
    )
    saturation = np.where(value > 0, span / np.where(value > 0, value, np.float32(1)), np.float32(0))
    return hue, saturation, value


def _from_hsv(hue: Image32, saturation: Image32, value: Image32) -> Image32:
    channels = []
    for offset in (5, 3, 1):
        k = (hue + np.float32(offset)) % np.float32(6)
        ramp = np.clip(np.minimum(k, np.float32(4) - k), 0, 1)
        channels.append(value - value * saturation * ramp)
    return np.stack(channels, axis=-1)


def normalise(image: npt.NDArray[np.floating] | npt.NDArray[np.uint8]) -> Image32:
    """To zero mean and unit spread, as [3, height, width]."""
    scaled = (image.astype(np.float64) - MEAN) / STD
    return np.ascontiguousarray(scaled.transpose(2, 0, 1).astype(np.float32))
