"""The two sizes of the project: one to try it out, one to train."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Size:
    """How much data, how large a network, how long a run."""

    name: str
    images: int
    validation: int  # the last ones of the images
    pixels: int
    stem_stride: int
    width: int
    blocks: tuple[int, ...]
    epoch_images: int
    steps: int
    warmup_steps: int
    learning_rate: float

    @property
    def training(self) -> int:
        """How many images there are to learn from."""
        return self.images - self.validation


TINY = Size(
    name="tiny",
    images=256,
    validation=64,
    pixels=32,
    stem_stride=4,
    width=8,
    blocks=(1,),
    epoch_images=512,
    steps=40,
    warmup_steps=4,
    learning_rate=0.01,
)
FULL = Size(
    name="full",
    images=20_000,
    validation=2_000,
    pixels=128,
    stem_stride=2,
    width=48,
    blocks=(2, 2, 2, 2),
    epoch_images=6_400,
    steps=2_000,
    warmup_steps=50,
    learning_rate=0.002,
)
SIZES = {size.name: size for size in (TINY, FULL)}
