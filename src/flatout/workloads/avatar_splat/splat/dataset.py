"""Frames of the avatar as training samples."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from splat.errors import UserError
from splat.render import View

NEAR, FAR = 0.05, 20.0
_NECK_LINE = 0.85  # of the image's height; below it are neck and collar


class CameraSample:
    """One camera at one moment: the picture, the camera, and the pose of the head."""

    def __init__(
        self,
        name: str,
        image: Tensor,
        alpha: Tensor,
        face: Tensor,
        background: Tensor,
        matrix: Tensor,
        focal: Tensor,
        centre: Tensor,
        position: Tensor,
        depth_range: Tensor,
        expression: Tensor,
        rotation: Tensor,
        translation: Tensor,
    ) -> None:
        self.name = name
        self.image = image
        self.alpha = alpha
        self.face = face
        self.background = background
        self.matrix = matrix
        self.focal = focal
        self.centre = centre
        self.position = position
        self.depth_range = depth_range
        self.expression = expression
        self.rotation = rotation
        self.translation = translation

    def to(self, device: torch.device) -> CameraSample:
        return CameraSample(
            name=self.name,
            image=self.image.to(device),
            alpha=self.alpha.to(device),
            face=self.face.to(device),
            background=self.background.to(device),
            matrix=self.matrix.to(device),
            focal=self.focal.to(device),
            centre=self.centre.to(device),
            position=self.position.to(device),
            depth_range=self.depth_range.to(device),
            expression=self.expression.to(device),
            rotation=self.rotation.to(device),
            translation=self.translation.to(device),
        )


@dataclass(frozen=True, slots=True)
class CameraBatch:
    """Samples stacked for one rendering."""

    image: Tensor
    alpha: Tensor
    face: Tensor
    expression: Tensor
    rotation: Tensor
    translation: Tensor
    view: View


def stacked(samples: list[CameraSample]) -> CameraBatch:
    """One batch of several samples."""

    def stack(fields: type) -> dict[str, Tensor]:
        names = [field.name for field in dataclasses.fields(fields) if field.name != "view"]
        return {name: torch.stack([getattr(sample, name) for sample in samples]) for name in names}

    return CameraBatch(view=View(**stack(View)), **stack(CameraBatch))


def only(samples: list[CameraSample]) -> CameraSample:
    """Collate for loaders with batches of one."""
    return samples[0]


class AvatarFrames(Dataset[CameraSample]):
    """The frames of one split, read from disk each time."""

    def __init__(self, folder: Path, split: str, resolution: int) -> None:
        self.folder, self.resolution = folder, resolution
        index = folder / "frames.json"
        try:
            frames = json.loads(index.read_text())
            self.frames: list[dict[str, Any]] = [frame for frame in frames if frame["split"] == split]
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(f"data file '{index}' is missing or damaged: {_remedy(folder)}") from None
        self.background = np.ones(3)

    def __len__(self) -> int:
        return len(self.frames)

    def picture(self, index: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Colours over the background and opacity, both cut to a square and resized, 0..255."""
        path = self.folder / self.frames[index]["file"]
        try:
            with Image.open(path) as file:
                rgba = np.asarray(file.convert("RGBA"))
        except (OSError, SyntaxError, ValueError):
            raise UserError(f"data file '{path}' is missing or damaged: {_remedy(self.folder)}") from None
        values = rgba / 255.0
        colour, alpha = values[:, :, :3], values[:, :, 3:4]
        composite = colour * alpha + self.background * (1 - alpha)
        pixels = (composite * 255.0).round().astype(np.uint8)
        return self._square(pixels).transpose(2, 0, 1).copy(), self._square(rgba[:, :, 3])[None].copy()

    def _square(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        height, width = pixels.shape[:2]
        top, side = (height - width) // 2, self.resolution
        square = Image.fromarray(pixels[top : top + width])
        return np.asarray(square.resize((side, side), Image.Resampling.BICUBIC))

    def face(self, alpha: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """The head above the neck."""
        mask: NDArray[np.bool_] = alpha > 127
        mask[:, int(_NECK_LINE * self.resolution) :] = False
        return mask

    def numbers(self, index: int) -> dict[str, list[float]]:
        """The camera, scaled to the square picture, and the pose."""
        frame = self.frames[index]
        width, height = frame["size"]
        scale = self.resolution / width
        centre = [frame["centre"][0] * scale, (frame["centre"][1] - (height - width) // 2) * scale]
        return {
            "background": self.background.tolist(),
            "matrix": frame["matrix"],
            "focal": [value * scale for value in frame["focal"]],
            "centre": centre,
            "position": frame["position"],
            "depth_range": [NEAR, FAR],
            "expression": frame["expression"],
            "rotation": frame["rotation"],
            "translation": frame["translation"],
        }

    def __getitem__(self, index: int) -> CameraSample:
        colour, alpha = self.picture(index)
        numbers = {name: torch.tensor(value) for name, value in self.numbers(index).items()}
        return CameraSample(
            name=self.frames[index]["file"],
            image=torch.from_numpy(colour).float() / 255.0,
            alpha=torch.from_numpy(alpha).float() / 255.0,
            face=torch.from_numpy(self.face(alpha)),
            **numbers,
        )


def _remedy(folder: Path) -> str:
    return f"remove the folder '{folder}' and run again, the data is then made anew"


class ShuffledFrames(Sampler[int]):
    """A new order each epoch that depends on the seed and the epoch only, so that a run can resume inside one."""

    def __init__(self, count: int, seed: int, seen: int = 0) -> None:
        self._count, self._seed = count, seed
        self._epoch, self._skip = divmod(seen, count)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed * 100_003 + self._epoch)
        order = torch.randperm(self._count, generator=generator).tolist()[self._skip :]
        self._epoch, self._skip = self._epoch + 1, 0
        return iter(order)
