"""A loader made again from one that exists, with other settings."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset

from .loader import DataLoader

_SAME = ("dataset", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "generator", "pin_memory_device")
_OURS = ("per_sample", "seeding", "compensate", "restarts", "tune")


def like(loader: TorchLoader[Any], **changes: Any) -> DataLoader:
    """A loader of ours over the same dataset and the same sampler, with `changes`."""
    settings = {name: getattr(loader, name) for name in _SAME}
    settings |= {name: getattr(loader, name) for name in _OURS if hasattr(loader, name)}
    settings["num_workers"] = loader.num_workers
    settings["in_order"] = getattr(loader, "in_order", True)
    if loader.num_workers:
        settings["prefetch_factor"] = loader.prefetch_factor
        settings["persistent_workers"] = loader.persistent_workers
        settings["multiprocessing_context"] = loader.multiprocessing_context
    if isinstance(loader.dataset, IterableDataset):
        settings |= {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    elif loader.batch_size is None and loader.batch_sampler is not None:
        settings["batch_sampler"] = loader.batch_sampler
    else:
        settings |= {"batch_size": loader.batch_size, "sampler": loader.sampler, "drop_last": loader.drop_last}
    settings |= changes
    if not settings["num_workers"]:
        # torch refuses these without workers.
        for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context"):
            settings.pop(name, None)
    if not hasattr(loader, "in_order"):
        del settings["in_order"]  # an older torch
    return DataLoader(**settings)


def autotune(loader: TorchLoader[Any]) -> DataLoader:
    """The same batches from a loader that finds its number of workers, and of batches ahead, while it runs."""
    return like(loader, tune=True)
