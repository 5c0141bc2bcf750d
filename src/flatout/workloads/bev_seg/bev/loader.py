"""Loaders for training and evaluation."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, Sampler

from bev.dataset import RoadScenes, Sample


class EpochSampler(Sampler[int]):
    """A new order every epoch, from the seed and the epoch alone; can start in the middle of one."""

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self.seed = seed
        self.epoch = 0
        self.skip = 0

    def set_epoch(self, epoch: int, skip: int = 0) -> None:
        """Choose the epoch, and how many of its samples were already seen."""
        self.epoch = epoch
        self.skip = skip

    def __len__(self) -> int:
        return self.count - self.skip

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(self.count, generator=generator).tolist()
        return iter([self.epoch * self.count + position for position in order[self.skip :]])


def build_dataloader(
    dataset: RoadScenes,
    samples_per_gpu: int,
    workers_per_gpu: int,
    sampler: Sampler[int] | None = None,
    drop_last: bool = False,
) -> DataLoader[Sample]:
    """A loader over the dataset; without a sampler in the stored order."""
    return DataLoader(
        dataset,
        batch_size=samples_per_gpu,
        sampler=sampler,
        num_workers=workers_per_gpu,
        drop_last=drop_last,
        # Its own generator: starting an epoch must not disturb the random numbers of the training.
        generator=torch.Generator().manual_seed(0),
    )


class IterLoader:
    """Batches without end, one epoch after the other."""

    def __init__(self, loader: DataLoader[Sample], sampler: EpochSampler, batch_size: int, done: int = 0) -> None:
        self.loader = loader
        self.sampler = sampler
        self.epoch, begun = divmod(done, sampler.count // batch_size)
        sampler.set_epoch(self.epoch, begun * batch_size)
        self.iterator = iter(loader)

    def __next__(self) -> Sample:
        try:
            return next(self.iterator)
        except StopIteration:
            self.epoch += 1
            self.sampler.set_epoch(self.epoch)
            self.iterator = iter(self.loader)
            return next(self.iterator)
