"""Images with their camera and map label."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from bev.augment import Placement, distort, draw_distortion, draw_placement, normalise, place
from bev.config import DataConfig
from bev.errors import UserError
from bev.grid import Polygon, rasterise

Sample = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Record:
    """One stored sample."""

    image: Image.Image
    intrinsics: npt.NDArray[np.float64]
    camera_to_ego: npt.NDArray[np.float64]
    polygons: list[Polygon]


class RoadScenes(Dataset[Sample]):
    """One half of the data set.

    An index counts on over the epochs, `epoch * len(dataset) + position`, so that a sample's augmentation follows from
    the seed and the index alone, whichever process makes it.
    """

    def __init__(
        self, folder: Path, count: int, size: tuple[int, int], augmented: bool, seed: int, delay_ms: float
    ) -> None:
        self.files = [folder / f"{index:06d}.jpg" for index in range(count)]
        for path in self.files:
            if not path.exists():
                raise UserError(f"the sample {path} is missing; remove {folder.parent} to have the data made again")
        self.size = size
        self.augmented = augmented
        self.seed = seed
        self.delay_ms = delay_ms

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Sample:
        epoch, position = divmod(index, len(self.files))
        record = self._read(self.files[position])
        rng = np.random.default_rng((self.seed, epoch, position))
        placement = draw_placement(rng) if self.augmented else Placement()
        image, intrinsics = place(record.image, record.intrinsics, self.size, placement)
        camera, polygons = record.camera_to_ego, record.polygons
        if placement.flip:
            camera, polygons = _mirror(camera, polygons)
            intrinsics = intrinsics @ np.diag([-1.0, 1.0, 1.0])
        # [3, 4]: a pixel times its depth, to the map's frame
        pixel_to_ego = np.concatenate([camera[:, :3] @ np.linalg.inv(intrinsics), camera[:, 3:]], axis=1)
        pixels = np.asarray(image, dtype=np.float32)
        if self.augmented:
            pixels = distort(pixels, draw_distortion(rng))
        return {
            "image": torch.from_numpy(normalise(pixels)),
            "pixel_to_ego": torch.from_numpy(pixel_to_ego.astype(np.float32)),
            "label": torch.from_numpy(rasterise(polygons)),
        }

    def _read(self, path: Path) -> Record:
        if self.delay_ms > 0:
            time.sleep(self.delay_ms / 1000)  # stands for a slow or remote disk
        try:
            image = Image.open(path).convert("RGB")
            meta = json.loads(path.with_suffix(".json").read_text())
            polygons: list[Polygon] = [(int(kind), [(x, z) for x, z in points]) for kind, points in meta["polygons"]]
            return Record(image, np.array(meta["intrinsics"]), np.array(meta["camera_to_ego"]), polygons)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"cannot read the sample {path}: {' '.join(str(error).split())}; "
                f"remove {path.parent.parent} to have the data made again"
            ) from None


def make_datasets(folder: Path, data: DataConfig, seed: int) -> tuple[RoadScenes, RoadScenes]:
    """The training and the validation half."""
    train = RoadScenes(folder / "train", data.train_samples, data.image_size, True, seed, data.disk_delay_ms)
    val = RoadScenes(folder / "val", data.val_samples, data.image_size, False, seed, data.disk_delay_ms)
    return train, val


def _mirror(camera: npt.NDArray[np.float64], polygons: list[Polygon]) -> tuple[npt.NDArray[np.float64], list[Polygon]]:
    """The world seen in a mirror: x changes its sign, in the camera and in the ego frame."""
    side = np.diag([-1.0, 1.0, 1.0])
    turned = np.concatenate([side @ camera[:, :3] @ side, side @ camera[:, 3:]], axis=1)
    return turned, [(kind, [(-x, z) for x, z in points]) for kind, points in polygons]
