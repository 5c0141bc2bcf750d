"""Loaders that keep up: enough workers, kept alive, pinned batches, no drain at the end of an epoch."""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from bev.dataset import RoadScenes, Sample
from bev.loader import EpochSampler


class EndlessBatches(Sampler[list[int]]):
    """The epochs' batches one after the other, so that workers begin an epoch while the last one is still used."""

    def __init__(self, sampler: EpochSampler, batch_size: int, done: int) -> None:
        self.sampler = sampler
        self.batch_size = batch_size
        self.done = done

    def __iter__(self) -> Iterator[list[int]]:
        epoch, begun = divmod(self.done, self.sampler.count // self.batch_size)
        while True:
            self.sampler.set_epoch(epoch, begun * self.batch_size)
            order = list(self.sampler)
            for start in range(0, len(order) - self.batch_size + 1, self.batch_size):
                yield order[start : start + self.batch_size]
            epoch, begun = epoch + 1, 0


def choose_workers(cores: int, batch_bytes: int, shared_bytes: int) -> tuple[int, int]:
    """Workers and batches ahead for each: four cores are left for the main process, and half of the shared memory."""
    workers = max(2, cores - 4)
    room = max(2, shared_bytes // 2 // batch_bytes)
    workers = min(workers, room)
    return workers, max(1, min(4, room // workers))


def _settings(dataset: RoadScenes, batch_size: int) -> tuple[int, int]:
    height, width = dataset.size
    disk = os.statvfs("/dev/shm")
    batch_bytes = batch_size * (height * width * 3 * 4 + 98 * 100 * 8)
    return choose_workers(len(os.sched_getaffinity(0)), batch_bytes, disk.f_bavail * disk.f_frsize)


def make_train_loader(dataset: RoadScenes, batches: EndlessBatches, device: torch.device) -> DataLoader[Sample]:
    """Same samples in the same order as the project's loader."""
    workers, prefetch = _settings(dataset, batches.batch_size)
    return DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=workers,
        prefetch_factor=prefetch,
        persistent_workers=True,
        pin_memory=device.type == "cuda",
        generator=torch.Generator().manual_seed(0),
    )


def make_val_loader(dataset: RoadScenes, batch_size: int, device: torch.device) -> DataLoader[Sample]:
    """In the stored order. Its workers stay alive between evaluations but hold one batch at most."""
    workers, _ = _settings(dataset, batch_size)
    return DataLoader(
        dataset,
        batch_size=batch_size,
        num_workers=min(workers, -(-len(dataset) // batch_size)),
        prefetch_factor=1,
        persistent_workers=True,
        pin_memory=device.type == "cuda",
        generator=torch.Generator().manual_seed(0),
    )


class DevicePrefetcher:
    """Copies the next batch on a stream of its own while the present one is computed."""

    def __init__(self, loader: DataLoader[Sample], device: torch.device) -> None:
        self.iterator = iter(loader)
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.coming: dict[str, Tensor] | None = None

    def __next__(self) -> dict[str, Tensor]:
        if self.stream is None:
            return next(self.iterator)
        if self.coming is None:
            self.coming = self._copy(self.stream)
        batch = self.coming
        present = torch.cuda.current_stream(self.device)
        present.wait_stream(self.stream)
        for value in batch.values():
            value.record_stream(present)
        self.coming = None
        return batch

    def fetch(self) -> None:
        """Begin the next copy; called when the present step's work is queued."""
        if self.stream is not None and self.coming is None:
            self.coming = self._copy(self.stream)

    def _copy(self, stream: torch.cuda.Stream) -> dict[str, Tensor]:
        data = next(self.iterator)
        with torch.cuda.stream(stream):
            return {name: value.to(self.device, non_blocking=True) for name, value in data.items()}
