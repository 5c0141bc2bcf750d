"""Settings of the masked language model."""

# mypy: ignore-errors

from dataclasses import dataclass


@dataclass
class Settings:
    vocab: int = 4096
    max_length: int = 512
    width: int = 768
    depth: int = 4
    batch: int = 128
    sentences: int = 8192
    learning_rate: float = 2e-4
    mask_share: float = 0.15
    seed: int = 21


TINY = {"vocab": 128, "max_length": 48, "width": 64, "depth": 1, "batch": 4, "sentences": 64}
