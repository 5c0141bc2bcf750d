"""Frames decoded in worker processes, packed into two pinned tensors, unpacked on the device."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from splat.dataset import AvatarFrames, CameraBatch
from splat.render import View

# Where each small field lies in the flat vector of numbers, and its shape.
_SHAPES = {
    "background": (3,),
    "matrix": (4, 4),
    "focal": (2,),
    "centre": (2,),
    "position": (3,),
    "depth_range": (2,),
    "expression": (8,),
    "rotation": (2, 3),
    "translation": (3,),
}
_VIEW = ("matrix", "focal", "centre", "position", "depth_range", "background")


class PackedSample:
    """One camera: five planes of bytes and one vector. The loader pins it, since it says how."""

    def __init__(self, planes: Tensor, numbers: Tensor) -> None:
        self.planes, self.numbers = planes, numbers

    def pin_memory(self) -> PackedSample:
        return PackedSample(self.planes.pin_memory(), self.numbers.pin_memory())


class PackedFrames(Dataset[PackedSample]):
    """The project's frames before they become floats: a quarter of the bytes to hand over and to copy."""

    def __init__(self, frames: AvatarFrames) -> None:
        self._frames = frames

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, index: int) -> PackedSample:
        colour, alpha = self._frames.picture(index)
        planes = np.concatenate([colour, alpha, self._frames.face(alpha).astype(np.uint8)])
        fields = self._frames.numbers(index)
        numbers = torch.cat([torch.tensor(fields[name]).flatten() for name in _SHAPES])
        return PackedSample(torch.from_numpy(planes), numbers)


def _only(samples: list[PackedSample]) -> PackedSample:
    return samples[0]


def _one_thread(worker: int) -> None:
    torch.set_num_threads(1)


def worker_count() -> int:
    """Enough to feed the device; more would only take cores from the thread that launches kernels."""
    return max(1, min(8, len(os.sched_getaffinity(0)) - 4))


def make_loader(frames: AvatarFrames, sampler: Sampler[int] | None, device: torch.device) -> DataLoader[PackedSample]:
    """Samples in the sampler's order, one by one: little shared memory, even where a step takes several."""
    return DataLoader(
        PackedFrames(frames),
        batch_size=1,
        sampler=sampler,
        num_workers=worker_count(),
        collate_fn=_only,
        pin_memory=device.type == "cuda",
        persistent_workers=True,
        prefetch_factor=2,
        worker_init_fn=_one_thread,
    )


def endless(loader: DataLoader[PackedSample], cameras: int) -> Iterator[list[PackedSample]]:
    """Lists of exactly `cameras` samples; a list may reach over the end of an epoch."""
    held: list[PackedSample] = []
    while True:
        for sample in loader:
            held.append(sample)
            if len(held) == cameras:
                yield held
                held = []


class Unpacker:
    """Copies samples to the device without waiting and takes them apart there."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # A tensor on the device: dividing by a Python number would multiply by its rounded inverse there.
        self._levels = torch.tensor(255.0, device=device)

    def __call__(self, samples: list[PackedSample]) -> CameraBatch:
        planes = torch.stack([sample.planes.to(self._device, non_blocking=True) for sample in samples])
        numbers = torch.stack([sample.numbers.to(self._device, non_blocking=True) for sample in samples])
        fields, first = {}, 0
        for name, shape in _SHAPES.items():
            length = int(np.prod(shape))
            fields[name] = numbers[:, first : first + length].unflatten(1, shape).contiguous()
            first += length
        return CameraBatch(
            image=planes[:, :3].float() / self._levels,
            alpha=planes[:, 3:4].float() / self._levels,
            face=planes[:, 4:5].bool(),
            expression=fields["expression"],
            rotation=fields["rotation"],
            translation=fields["translation"],
            view=View(**{name: fields[name] for name in _VIEW}),
        )
