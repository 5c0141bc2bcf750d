"""Images as training samples: which one comes next, how it is varied, how the network gets it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, Sampler

from graycnn.augment import augment
from graycnn.images import Split, read_image

MEAN, STD = 0.47, 0.16


class Surfaces(Dataset[tuple[torch.Tensor, int]]):
    """The images of one split, varied at random when `augmented`.

    A sample is asked for by its draw: pass over the data × number of images + image. So every pass varies an image
    anew, and a draw gives the same sample whoever loads it.
    """

    def __init__(self, split: Split, seed: int, augmented: bool) -> None:
        self.split = split
        self.seed = seed
        self.augmented = augmented

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, draw: int) -> tuple[torch.Tensor, int]:
        turn, index = divmod(draw, len(self.split))
        image = read_image(self.split.paths[index], self.split.pixels)
        if self.augmented:
            image = augment(image, np.random.default_rng((self.seed, turn, index)))
        return to_tensor(image), self.split.labels[index]


def to_tensor(image: Image.Image) -> torch.Tensor:
    """Height × width of grey levels as one channel of zero mean and unit spread."""
    pixels = np.asarray(image, dtype=np.float32) / 255
    return torch.from_numpy((pixels - MEAN) / STD).unsqueeze(0)


class Draws(Sampler[int]):
    """Part of an endless row of shuffled passes over the images: `count` draws from number `start` on."""

    def __init__(self, images: int, seed: int, count: int) -> None:
        self.images = images
        self.seed = seed
        self.start = 0
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        turn, place = divmod(self.start, self.images)
        left = self.count
        while left > 0:
            order = np.random.default_rng((self.seed, turn)).permutation(self.images)[place : place + left]
            yield from (turn * self.images + order).tolist()
            left -= len(order)
            turn, place = turn + 1, 0
