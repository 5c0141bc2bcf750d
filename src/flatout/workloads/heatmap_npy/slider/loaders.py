"""Loaders of the pre-batched NPY files: one item is a whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from slider.config import DataConfig
from slider.errors import SliderError
from slider.generate import ARRAYS, array_shapes, batch_path

Batch = dict[str, torch.Tensor]


class NpyBatches(Dataset[Batch]):
    """The files of a split; the batching was done when they were made."""

    def __init__(self, folder: Path, split: str, count: int, data: DataConfig) -> None:
        self.folder, self.split, self.count = folder, split, count
        self.shapes = array_shapes(data)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Batch:
        return {array: self._load(index, array) for array in ARRAYS}

    def _load(self, index: int, array: str) -> torch.Tensor:
        path = batch_path(self.folder, self.split, index, array)
        try:
            values = np.load(path)
        except (OSError, ValueError, EOFError):
            raise corrupt(path) from None
        if values.shape != self.shapes[array] or values.dtype != np.float32:
            raise corrupt(path)
        return torch.from_numpy(values)


def corrupt(path: Path) -> SliderError:
    folder = str(path.parents[1])
    return SliderError(f"data file {str(path)!r} is corrupt; delete {folder!r} to make the data again")


def epoch_order(seed: int, epoch: int, count: int) -> list[int]:
    """The order of an epoch follows from the seed and the epoch alone, so a resumed run sees the same files."""
    generator = torch.Generator().manual_seed(seed * 100_003 + epoch)
    return torch.randperm(count, generator=generator).tolist()


class EpochSampler(Sampler[int]):
    """What is left of an epoch."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed
        self.epoch, self.done = 0, 0

    def set_epoch(self, epoch: int, done: int) -> None:
        self.epoch, self.done = epoch, done

    def __len__(self) -> int:
        return self.count - self.done

    def __iter__(self) -> Iterator[int]:
        return iter(epoch_order(self.seed, self.epoch, self.count)[self.done :])


def create_train_loader(folder: Path, data: DataConfig, seed: int) -> tuple[DataLoader[Batch], EpochSampler]:
    dataset = NpyBatches(folder, "train", data.train_files, data)
    sampler = EpochSampler(len(dataset), seed)
    loader = DataLoader(
        dataset,
        batch_size=1,
        sampler=sampler,
        num_workers=2,
        pin_memory=torch.cuda.is_available(),
        drop_last=False,
    )
    return loader, sampler


def create_val_loader(folder: Path, data: DataConfig) -> DataLoader[Batch]:
    dataset = NpyBatches(folder, "val", data.val_files, data)
    return DataLoader(
        dataset,
        batch_size=1,
        shuffle=False,
        num_workers=2,
        pin_memory=torch.cuda.is_available(),
        drop_last=False,
    )


def create_test_loader(folder: Path, data: DataConfig) -> DataLoader[Batch]:
    dataset = NpyBatches(folder, "test", data.test_files, data)
    return DataLoader(
        dataset,
        batch_size=1,
        shuffle=False,
        num_workers=2,
        pin_memory=torch.cuda.is_available(),
        drop_last=False,
    )


def create_calibration_loader(folder: Path, data: DataConfig) -> DataLoader[Batch]:
    """The first training files, in order."""
    dataset = NpyBatches(folder, "train", data.calibration_files, data)
    return DataLoader(
        dataset,
        batch_size=1,
        shuffle=False,
        num_workers=2,
        pin_memory=torch.cuda.is_available(),
        drop_last=False,
    )
