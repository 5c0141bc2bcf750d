"""DataLoaders from the config's DATALOADER section."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from deblur.config import Config

Batch = dict[str, Tensor]


def as_arrays(samples: list[Batch]) -> dict[str, Any]:
    """A batch that travels through the worker's pipe, for containers with next to no shared memory."""
    batch: Batch = default_collate(samples)
    return {name: tensor.numpy() for name, tensor in batch.items()}


def as_tensors(batch: dict[str, Any]) -> Batch:
    return {name: torch.as_tensor(value) for name, value in batch.items()}


def collate_for(batches: int, batch_bytes: int) -> Callable[[list[Batch]], dict[str, Any]]:
    """Tensors go through /dev/shm, which Docker limits to 64 MB by default; a worker would die of it."""
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError:
        return default_collate  # not Linux: shared memory lies elsewhere
    return default_collate if batches * batch_bytes < free else as_arrays


def _sample_bytes(config: Config) -> int:
    data = config.DATA
    crop = max(data.TRAIN_CROP_SIZE, *(size for _, size in data.CROP_SCHEDULE), 0)
    return data.CLIP_LENGTH * (6 + data.SPIKE_BINS) * crop**2 * 4


def train_loader(dataset: Dataset[Batch], sampler: Sampler[int], config: Config) -> DataLoader[Batch]:
    loader, workers = config.DATALOADER, config.DATALOADER.workers
    batches = workers * loader.TRAIN_PREFETCH_FACTOR + 2
    return DataLoader(
        dataset,
        batch_size=config.TRAIN.BATCH_SIZE,
        sampler=sampler,
        num_workers=workers,
        prefetch_factor=loader.TRAIN_PREFETCH_FACTOR if workers else None,
        pin_memory=loader.PIN_MEMORY,
        persistent_workers=loader.PERSISTENT_WORKERS and workers > 0,
        drop_last=loader.DROP_LAST,
        collate_fn=collate_for(batches, config.TRAIN.BATCH_SIZE * _sample_bytes(config)),
    )


def val_loader(dataset: Dataset[Batch], config: Config) -> DataLoader[Batch]:
    loader = config.DATALOADER
    workers = min(loader.workers, config.DATA.VAL_CLIPS)
    return DataLoader(
        dataset,
        batch_size=1,
        num_workers=workers,
        prefetch_factor=loader.VAL_PREFETCH_FACTOR if workers else None,
        pin_memory=loader.PIN_MEMORY,
        collate_fn=collate_for(workers * loader.VAL_PREFETCH_FACTOR + 2, _sample_bytes(config)),
    )
