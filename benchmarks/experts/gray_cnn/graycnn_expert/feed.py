"""Loads ahead of the training, in small pieces of bytes, and decodes each image once."""

from __future__ import annotations

import argparse
import mmap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from graycnn.augment import augment
from graycnn.dataset import Draws, to_tensor
from graycnn.images import Split, read_image

PIECE = 64  # images a worker hands over at once

Pieces = Iterator[tuple[torch.Tensor, torch.Tensor]]


class ByteSurfaces(Dataset[tuple[torch.Tensor, int]]):
    """The project's augmented samples as grey levels, a quarter of the bytes; decoded images are shared by all workers.

    The memory is anonymous, so it needs neither /dev/shm nor a file, and workers must be forked to share it.
    """

    def __init__(self, split: Split, seed: int) -> None:
        self.split = split
        self.seed = seed
        self.decoded = shared_bytes(len(split), split.pixels, split.pixels)
        self.ready = shared_bytes(len(split))

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, draw: int) -> tuple[torch.Tensor, int]:
        turn, index = divmod(draw, len(self.split))
        image = augment(self.read(index), np.random.default_rng((self.seed, turn, index)))
        return torch.from_numpy(np.array(image)).unsqueeze(0), self.split.labels[index]

    def read(self, index: int) -> Image.Image:
        """The decoded image. Two workers may both decode it: they write the same bytes, and the mark comes last."""
        if self.ready[index]:
            return Image.fromarray(self.decoded[index])
        image = read_image(self.split.paths[index], self.split.pixels)
        self.decoded[index] = np.asarray(image)
        self.ready[index] = 1
        return image


def shared_bytes(*shape: int) -> npt.NDArray[np.uint8]:
    """Zeros that forked processes share."""
    return np.frombuffer(mmap.mmap(-1, int(np.prod(shape))), np.uint8).reshape(shape)


def make_loader(opt: argparse.Namespace, split: Split, step: int, seen: int) -> DataLoader[tuple[torch.Tensor, int]]:
    """One pass over all that is left of the run: no epoch starts with an empty queue."""
    draws = Draws(len(split), opt.seed, count=(opt.steps - step) * opt.batch_size)
    draws.start = seen
    return DataLoader(
        ByteSurfaces(split, opt.seed),
        batch_size=piece_size(opt),
        sampler=draws,
        num_workers=opt.num_workers,
        pin_memory=opt.device == "cuda",
        multiprocessing_context="fork" if opt.num_workers else None,
    )


def piece_size(opt: argparse.Namespace) -> int:
    """A large batch arrives in pieces: sooner, and with less shared memory under way."""
    return PIECE if opt.batch_size % PIECE == 0 else int(opt.batch_size)


def next_batch(opt: argparse.Namespace, pieces: Pieces, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The next batch on the device, as bytes; the copies overlap with the training."""
    taken = [next(pieces) for _ in range(opt.batch_size // piece_size(opt))]
    images = torch.cat([images.to(device, non_blocking=True) for images, _ in taken])
    labels = torch.cat([labels.to(device, non_blocking=True) for _, labels in taken])
    return images, labels


def read_all(split: Split, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Every image of a split as it is, and its label, on the device. 2,000 of 128×128 are 33 MB."""
    with ThreadPoolExecutor(4) as pool:
        images = pool.map(lambda path: np.array(read_image(path, split.pixels)), split.paths)
        stacked = torch.from_numpy(np.stack(list(images))).unsqueeze(1)
    return stacked.to(device), torch.tensor(split.labels, device=device)


def level_values(device: torch.device) -> torch.Tensor:
    """What the network gets for each of the 256 grey levels: the very numbers of the project's `to_tensor`."""
    return to_tensor(Image.fromarray(np.arange(256, dtype=np.uint8).reshape(1, 256))).flatten().to(device)
