"""Put the cache in front of a DataLoader's dataset, with the policy that suits its sampler, and take it away again."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch.utils.data as data

from ...records.message import message
from ..machine import ranks_here
from ..reasons import error_text
from .dataset import foresee, is_cached, keep_samples, set_policy, uncached, write_note
from .place import Note
from .policy import choose, innermost

_EPOCHS_AHEAD = 3


def wrap(loader_or_dataset: Any, options: Mapping[str, Any] | None = None, note: Note = write_note) -> Any:
    """Returns what it was given: a loader with its dataset cached, or the dataset, cached. Refusals go to `note`.

    Options: `budget`, `policy` and `spill` as for `cached`. A loader is wrapped right after it was made.
    """
    options = dict(options or {})
    if not isinstance(loader_or_dataset, data.DataLoader):
        return keep_samples(loader_or_dataset, note, **options)
    loader = loader_or_dataset
    sampler = _sampler_of(loader)
    policy = options.pop("policy", None) or choose(sampler)
    dataset = keep_samples(loader.dataset, note, policy=policy, **options)
    if not is_cached(dataset):
        return loader
    if policy == "clairvoyant" and not _watch(sampler, dataset, note):
        policy = "lru"
        set_policy(dataset, policy)
        note(message("cache.order_unknown", sampler=type(sampler).__name__))
    # DataLoader refuses to set its dataset once it is made; nothing in it depends on which object that is.
    loader.__dict__["dataset"] = dataset
    return loader


def unwrap(loader_or_dataset: Any) -> Any:
    """Undo `wrap`: the dataset and the sampler's class are the originals again."""
    if not isinstance(loader_or_dataset, data.DataLoader):
        return uncached(loader_or_dataset)
    loader = loader_or_dataset
    sampler = _sampler_of(loader)
    if "_flatout_publish" in vars(sampler):
        sampler.__class__ = type(sampler).__mro__[1]
        del sampler._flatout_publish
    loader.__dict__["dataset"] = uncached(loader.dataset)
    return loader


def _watched(kind: type) -> type:
    """That sampler, but an epoch is drawn at once, published, and then given out as before."""

    def __iter__(sampler: Any) -> Iterator[Any]:
        # Drawn at the first `next`, when the sampler itself would begin to draw.
        order = list(kind.__iter__(sampler))  # type: ignore[attr-defined]
        sampler._flatout_publish(sampler, order)
        yield from order

    return type(kind.__name__, (kind,), {"__module__": kind.__module__, "__iter__": __iter__})


def _sampler_of(loader: Any) -> Any:
    return innermost(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler)


def _watch(sampler: Any, dataset: Any, note: Note) -> bool:
    """Have the sampler publish its order. The object stays the same, and of its own class to isinstance."""
    kind = type(sampler)
    # Only those that draw an epoch from one generator, at its beginning: drawing it at once changes nothing.
    is_shared = kind is data.DistributedSampler
    if not is_shared and kind not in (data.WeightedRandomSampler, data.RandomSampler):
        return False

    def publish(sampler: Any, order: list[int]) -> None:
        try:
            foreseen = _host_order(sampler) if is_shared else order
            if foreseen is not None:
                foresee(dataset, foreseen, _chances(sampler))
        except Exception as error:
            note(message("cache.epoch_unknown", error=error_text(error)))

    sampler._flatout_publish = publish
    sampler.__class__ = _watched(kind)
    return True


def _chances(sampler: Any) -> Any:
    weights = getattr(sampler, "weights", None)
    return None if weights is None else weights.detach().cpu().numpy()


def _host_order(sampler: Any) -> list[int] | None:
    """What all ranks of this host read in this epoch and the next ones; told by the first of them."""
    if int(os.environ.get("LOCAL_RANK", "0")) != 0:
        return None
    here = range(sampler.rank, sampler.rank + ranks_here())
    foreseen: list[int] = []
    for epoch in range(sampler.epoch, sampler.epoch + _EPOCHS_AHEAD):
        orders = [_order_of(sampler, rank, epoch) for rank in here]
        foreseen += [index for indices in zip(*orders, strict=True) for index in indices]
    return foreseen


def _order_of(sampler: Any, rank: int, epoch: int) -> list[int]:
    twin = copy.copy(sampler)
    twin.rank, twin.epoch = rank, epoch
    return list(data.DistributedSampler.__iter__(twin))
