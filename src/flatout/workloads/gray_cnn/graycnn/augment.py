"""Random views of one surface: position, shape, light, focus and sensor noise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter, ImageOps

Floats = npt.NDArray[np.float32]


def augment(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """A new grey image of the same size; the same `rng` gives the same one."""
    image = flip(image, rng)
    image = affine(image, rng)
    if rng.random() < 0.3:
        image = elastic(image, rng)
    image = relight(image, rng)
    if rng.random() < 0.5:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.2)))
    return add_noise(image, rng)


def flip(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Left to right and top to bottom, each every second time."""
    if rng.random() < 0.5:
        image = ImageOps.mirror(image)
    if rng.random() < 0.5:
        image = ImageOps.flip(image)
    return image


def affine(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Turned up to 12°, scaled by up to 10%, moved by up to 6%, about the middle."""
    angle = np.deg2rad(rng.uniform(-12, 12))
    scale = rng.uniform(0.9, 1.1)
    middle = image.width / 2
    shift_x, shift_y = rng.uniform(-0.06, 0.06, 2) * image.width
    cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
    # PIL wants the way back: from a pixel of the result to one of the source.
    back_x = middle - cos * (middle + shift_x) - sin * (middle + shift_y)
    back_y = middle + sin * (middle + shift_x) - cos * (middle + shift_y)
    matrix = (cos, sin, back_x, -sin, cos, back_y)
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR, fillcolor=120)


def elastic(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Bent by a smooth random field (Simard et al., 2003), up to about 2% of the width."""
    pixels = np.asarray(image, dtype=np.float32)
    height, width = pixels.shape
    rows, columns = np.meshgrid(np.arange(height, dtype=np.float32), np.arange(width, dtype=np.float32), indexing="ij")
    reach = 0.02 * width
    rows = np.clip(rows + reach * smooth_field(height, width, rng), 0, height - 1.001)
    columns = np.clip(columns + reach * smooth_field(height, width, rng), 0, width - 1.001)
    return Image.fromarray(bilinear(pixels, rows, columns).astype(np.uint8))


def smooth_field(height: int, width: int, rng: np.random.Generator) -> Floats:
    """Noise on a coarse grid, stretched to the image."""
    coarse = Image.fromarray(rng.uniform(-1, 1, (6, 6)).astype(np.float32))
    return np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))


def bilinear(pixels: Floats, rows: Floats, columns: Floats) -> Floats:
    """`pixels` read between its points."""
    top, left = rows.astype(np.int64), columns.astype(np.int64)
    down, right = rows - top, columns - left
    above = pixels[top, left] * (1 - right) + pixels[top, left + 1] * right
    below = pixels[top + 1, left] * (1 - right) + pixels[top + 1, left + 1] * right
    between: Floats = above * (1 - down) + below * down
    return between


def relight(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Another brightness, contrast and gamma."""
    brightness, contrast, gamma = rng.uniform(-20, 20), rng.uniform(0.8, 1.25), rng.uniform(0.8, 1.25)
    levels = np.clip((np.arange(256) - 128) * contrast + 128 + brightness, 0, 255)
    levels = 255 * (levels / 255) ** gamma
    return image.point(levels.round().astype(int).tolist())


def add_noise(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Sensor noise of a random strength."""
    pixels = np.asarray(image, dtype=np.float32)
    noise = rng.normal(0, rng.uniform(1, 8), pixels.shape)
    return Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8))
