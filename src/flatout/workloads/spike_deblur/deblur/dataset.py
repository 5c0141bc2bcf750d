"""Clips of blurry and sharp frames with voxelised spikes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from deblur.cache import CacheStats, LRUCache
from deblur.config import Config
from deblur.errors import DeblurError
from deblur.generate import DataShape, frame_paths, voxel_path
from deblur.voxel import read_packed, voxelise


@dataclass(frozen=True, slots=True)
class Crop:
    """Where a clip is cut out and how it is mirrored."""

    top: int
    left: int
    size: int
    mirror: bool = False
    flip: bool = False

    @classmethod
    def random(cls, shape: DataShape, size: int, rng: np.random.Generator) -> Crop:
        top = int(rng.integers(shape.height - size + 1))
        left = int(rng.integers(shape.width - size + 1))
        return cls(top, left, size, bool(rng.integers(2)), bool(rng.integers(2)))

    @classmethod
    def centre(cls, shape: DataShape, size: int) -> Crop:
        return cls((shape.height - size) // 2, (shape.width - size) // 2, size)

    def cut(self, image: Tensor) -> Tensor:
        part = image[..., self.top : self.top + self.size, self.left : self.left + self.size]
        axes = [axis for axis, wanted in ((-1, self.mirror), (-2, self.flip)) if wanted]
        return part.flip(axes)


def read_image(path: Path, shape: DataShape) -> NDArray[np.uint8]:
    try:
        with Image.open(path) as image:
            pixels = np.array(image)
    except (OSError, SyntaxError, ValueError) as error:  # a damaged PNG raises any of these
        reason = str(error).splitlines()[0]
        raise DeblurError(f"cannot read image {path}: {reason}; delete its folder to make the data again") from None
    if pixels.shape != (shape.height, shape.width, 3):
        raise DeblurError(f"image {path} has shape {pixels.shape}; delete its folder to make the data again")
    return pixels


class ClipIndex:
    """Which frames a clip number means, and which crop it gets in an epoch."""

    def __init__(self, config: Config, shape: DataShape, seed: int, train: bool) -> None:
        self.shape, self.seed, self.train, self.data = shape, seed, train, config.DATA
        held_out = min(config.DATA.VAL_SEQUENCES, shape.sequences - 1)
        split = shape.sequences - held_out
        self.sequences = range(split) if train else range(split, shape.sequences)
        self.starts = shape.frames - config.DATA.CLIP_LENGTH + 1
        largest = max(config.DATA.TRAIN_CROP_SIZE, *(size for _, size in config.DATA.CROP_SCHEDULE), 0)
        if largest > min(shape.height, shape.width):
            raise DeblurError(f"config key 'DATA.TRAIN_CROP_SIZE': {largest} is larger than the frames")
        if self.starts < 1:
            raise DeblurError(
                f"config key 'DATA.CLIP_LENGTH' must be at most {shape.frames}, got {shape.frames - self.starts + 1}"
            )
        # Shared with the workers, which outlive an epoch when they are persistent.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        clips = len(self.sequences) * self.starts
        return clips * self.data.REPEAT if self.train else min(self.data.VAL_CLIPS, clips)

    def set_epoch(self, epoch: int) -> None:
        self._epoch.fill_(epoch)

    def frames(self, index: int) -> list[tuple[int, int]]:
        """(sequence, frame) of each frame of the clip."""
        clips = len(self.sequences) * self.starts
        clip = index % clips if self.train else index * clips // len(self)
        sequence, start = divmod(clip, self.starts)
        return [(self.sequences[sequence], start + i) for i in range(self.data.CLIP_LENGTH)]

    def crop(self, index: int) -> Crop:
        if not self.train:
            return Crop.centre(self.shape, self.data.TRAIN_CROP_SIZE)
        epoch = int(self._epoch)
        rng = np.random.default_rng([self.seed, epoch, index])
        return Crop.random(self.shape, self.data.crop_at(epoch), rng)


class SpikeDeblurDataset(Dataset[dict[str, Tensor]]):
    """Blurry frames, sharp frames and spike voxels of a clip, cropped alike."""

    def __init__(self, root: Path, config: Config, shape: DataShape, seed: int, train: bool) -> None:
        self.root, self.shape, self.data = root, shape, config.DATA
        self.clips = ClipIndex(config, shape, seed, train)
        self.stats = CacheStats(config.DATALOADER.workers)
        self.cache = LRUCache(config.DATA.CACHE_SIZE_GB, self.stats) if config.DATA.USE_RAM_CACHE and train else None

    def __len__(self) -> int:
        return len(self.clips)

    def set_epoch(self, epoch: int) -> None:
        self.clips.set_epoch(epoch)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        crop = self.clips.crop(index)
        frames = [self._frame(*place) for place in self.clips.frames(index)]
        return {name: torch.stack([crop.cut(frame[name]) for frame in frames]) for name in frames[0]}

    def _frame(self, sequence: int, frame: int) -> dict[str, Tensor]:
        key = (sequence, frame)
        cached = self.cache.get(key) if self.cache is not None else None
        if cached is not None:
            return cached
        loaded = self._load(sequence, frame)
        if self.cache is not None:
            self.cache.put(key, loaded)
        return loaded

    def _load(self, sequence: int, frame: int) -> dict[str, Tensor]:
        blur, sharp, spike = frame_paths(self.root, sequence, frame)
        return {
            "blur": _to_float(read_image(blur, self.shape)),
            "sharp": _to_float(read_image(sharp, self.shape)),
            "spike": torch.from_numpy(self._voxels(spike, sequence, frame)),
        }

    def _voxels(self, spike: Path, sequence: int, frame: int) -> NDArray[np.float32]:
        bins, height, width = self.data.SPIKE_BINS, self.shape.height, self.shape.width
        if not self.data.USE_PRECOMPUTED_VOXELS:
            return voxelise(read_packed(spike, self.shape.spikes), bins, height, width)
        path = voxel_path(self.root, sequence, frame)
        try:
            voxels: NDArray[np.float32] = np.load(path)
        except (OSError, ValueError, EOFError):
            raise DeblurError(
                f"cannot read voxels {path}; make them with --make-data-only and the same options"
            ) from None
        if voxels.shape != (bins, height, width):
            raise DeblurError(f"voxels {path} have shape {voxels.shape}; delete its folder and make them again")
        return voxels

    def print_cache_stats(self) -> None:
        hits, misses, items, size = self.stats.total()
        rate = 100 * hits / max(1, hits + misses)
        print("[SpikeDeblurDataset] Cache Stats:")
        print(f"  - Size: {items} items")
        print(f"  - Memory: {size / 2**20:.1f} / {self.data.CACHE_SIZE_GB * 1024:.1f} MB")
        print(f"  - Hit Rate: {rate:.2f}% ({hits} hits / {misses} misses)", flush=True)


def _to_float(pixels: NDArray[np.uint8]) -> Tensor:
    image = pixels.astype(np.float32) / 255.0
    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))


class RandomClips(Sampler[int]):
    """All clips of an epoch in random order, which depends on seed and epoch only: a run can resume inside one."""

    def __init__(self, clips: int, seed: int) -> None:
        self._clips, self._seed = clips, seed
        self._epoch = self._skip = 0

    def __len__(self) -> int:
        return self._clips - self._skip

    def set_epoch(self, epoch: int, skip: int = 0) -> None:
        self._epoch, self._skip = epoch, skip

    def __iter__(self) -> Iterator[int]:
        order = np.random.default_rng([self._seed, self._epoch]).permutation(self._clips)
        yield from order[self._skip :].tolist()
