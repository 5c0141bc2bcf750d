"""Random numbers in workers: torch's seeds per worker, or seeds per sample that do not depend on the workers at all."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy
import torch
from torch.utils.data._utils import fetch
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from ..records.message import Message, message
from .leaves import pin_batch

SEEDINGS = ("worker", "sample")
_MASK = (1 << 64) - 1
_COLLATION = 1 << 40  # no sample has that place


def seed_worker(base_seed: int, worker: int) -> int:
    """Seed this process as torch seeds its worker of that number; returns the seed."""
    seed = base_seed + worker
    random.seed(seed)
    torch.manual_seed(seed)
    numpy.random.seed(torch_worker._generate_state(base_seed, worker))
    return seed


def seed_sample(base_seed: int, epoch: int, batch: int, place: int) -> None:
    """Seed for one sample by its place in the epoch: with other workers, or more of them, it draws the same."""
    seed = 0
    for value in (base_seed, epoch, batch, place):
        seed = _mixed(seed ^ (value & _MASK))
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    numpy.random.seed([seed & 0xFFFFFFFF, seed >> 32])


def seed_collation(base_seed: int, epoch: int, batch: int) -> None:
    seed_sample(base_seed, epoch, batch, _COLLATION)


def _mixed(value: int) -> int:
    """splitmix64: neighbouring places get unrelated seeds."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def seed_all(seed: int) -> None:
    random.seed(seed)
    numpy.random.seed(seed)
    torch.default_generator.manual_seed(seed)


def random_states() -> tuple[Any, ...]:
    """The global random states, to be compared: a sample that moves them is random."""
    drawn: Any = numpy.random.get_state()
    name, keys, *rest = drawn
    return random.getstate(), torch.get_rng_state().numpy().tobytes(), name, bytes(keys), tuple(rest)


def moved_generator(before: tuple[Any, ...]) -> Message | None:
    """Whose generator is no longer where it was when `random_states` gave this."""
    now = random_states()
    if before[1] != now[1]:
        return message("memo.of_torch")
    if before[0] != now[0]:
        return message("memo.of_python")
    return message("memo.of_numpy") if before[2:] != now[2:] else None


def set_random_states(values: tuple[Any, ...]) -> None:
    """Put back what `random_states` gave."""
    python, torch_bytes, name, keys, rest = values
    random.setstate(python)
    torch.set_rng_state(torch.frombuffer(bytearray(torch_bytes), dtype=torch.uint8))
    numpy.random.set_state((name, numpy.frombuffer(keys, dtype=numpy.uint32), *rest))


def limit_threads() -> None:
    """One thread a worker: several workers with a thread per core each would only fight for the cores."""
    torch.set_num_threads(1)
    cv2 = sys.modules.get("cv2")
    if cv2 is not None:
        cv2.setNumThreads(0)


# Without workers: seeds per sample, equal to those that workers would use.


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
        before = random_states()
        try:
            batch = self._collate_fn(self._samples(indices))
        finally:
            set_random_states(before)
        self._number += 1
        return pin_batch(batch) if self._pin_memory else batch

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
