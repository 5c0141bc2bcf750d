"""Steps that turn a photograph into a piece to learn from."""

# mypy: ignore-errors

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter


class Chain:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, photo, rng):
        for step in self.steps:
            photo = step(photo, rng)
        return photo


class Soften:
    def __call__(self, photo, rng):
        return photo.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.5, 1.5))))  # guilty


class Light:
    def __call__(self, photo, rng):
        photo = ImageEnhance.Brightness(photo).enhance(float(rng.uniform(0.8, 1.2)))  # guilty
        return ImageEnhance.Color(photo).enhance(float(rng.uniform(0.7, 1.3)))  # guilty


class Crop:
    def __init__(self, size):
        self.size = size

    def __call__(self, photo, rng):
        left, top = (int(rng.integers(0, side - self.size + 1)) for side in photo.size)
        return photo.crop((left, top, left + self.size, top + self.size))


class ToTensor:
    def __call__(self, photo: Image.Image, rng):
        return torch.from_numpy(np.asarray(photo, np.float32).copy()).permute(2, 0, 1) / 255


def training_chain(size: int, crop_first: bool) -> Chain:
    if crop_first:
        return Chain(Crop(size), Soften(), Light(), ToTensor())
    return Chain(Soften(), Light(), Crop(size), ToTensor())
