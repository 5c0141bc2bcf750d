"""Without workers: seeds per sample, equal to those that workers would use."""

from __future__ import annotations

from typing import Any

from torch.utils.data._utils import fetch
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from .leaves import pinned
from .seeding import seed_collation, seed_sample, set_states, states


class SeededIterator(_SingleProcessDataLoaderIter):
    """The process's own random state is the same before and after each batch."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._epoch = loader._feed.epoch
        self._seed = int(self._base_seed)
        self._data: Any = self._dataset
        self._number = loader._feed.skipped
        self._load = fetch._MapDatasetFetcher(self._dataset, True, _first, False)
        self._together = bool(getattr(self._dataset, "__getitems__", None))

    def _next_data(self) -> Any:
        indices = next(self._sampler_iter)
        before = states()
        try:
            batch = self._collate_fn(self._samples(indices))
        finally:
            set_states(before)
        self._number += 1
        return pinned(batch) if self._pin_memory else batch

    def _samples(self, indices: Any) -> Any:
        if self._together:
            seed_sample(self._seed, self._epoch, self._number, 0)
            samples = self._data.__getitems__(indices)
        else:
            samples = []
            for place, index in enumerate(indices):
                seed_sample(self._seed, self._epoch, self._number, place)
                samples.append(self._load.fetch([index]))
        seed_collation(self._seed, self._epoch, self._number)
        return samples


def _first(samples: Any) -> Any:
    return samples[0]
