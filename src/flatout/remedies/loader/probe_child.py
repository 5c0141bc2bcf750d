"""What is seen of a dataset, its sampler and its collate function by using them, in a child process that then ends."""

from __future__ import annotations

import copy
import itertools
import pickle
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_ENOUGH_S = 0.3
_SAMPLES = 4
# Entries of a sampler, and the seconds they may take.
_ENTRIES = 64
_ORDER_S = 0.5
_LONGEST_NAME = 64


class ChildProbe:
    """One look."""

    def __init__(self, torch: Any, dataset: Any, batching: Batching) -> None:
        self._torch = torch
        self._dataset = dataset
        self._batching = batching

    def seen(self) -> dict[str, Any]:
        """The fields of a Look."""
        indices, order_draws = self._order()
        one, first_s, drew = self._read(indices[0])
        # The first reading of all also opens what is opened once; the second is timed.
        other, again_s, _ = self._read(indices[0])
        same = _alike(one, other)
        before = _attributes(self._dataset)
        times_s, samples = [again_s], [other]
        changes = None
        if first_s + again_s < _ENOUGH_S:
            _, took_s, _ = self._read(indices[0])
            times_s.append(took_s)
            changes = _first_difference(before, _attributes(self._dataset))
        for index in indices[1:]:
            if first_s + sum(times_s) > _ENOUGH_S:
                break
            sample, took_s, drew_too = self._read(index)
            samples.append(sample)
            times_s.append(took_s)
            drew = drew or drew_too
        collate_draws, collates_same = self._collating(samples)
        return {
            "draws": drew,
            "same": same,
            "sample_s": statistics.median(times_s),
            "collate_draws": collate_draws,
            "collates_same": collates_same,
            "changes": changes,
            "order_draws": order_draws,
        }

    def _read(self, index: Any) -> tuple[Any, float, bool]:
        """A sample read from the same random state, the seconds it took, and whether it has drawn."""
        together = getattr(self._dataset, "__getitems__", None) if self._batching.is_batched else None
        return self._watched(lambda: together([index])[0] if together else self._dataset[index])

    def _watched(self, call: Callable[[], Any]) -> tuple[Any, float, bool]:
        """What it gives from the same random state each time, the seconds it takes, and whether it has moved that."""
        self._seed()
        before = self._states()
        began_s = time.perf_counter()
        result = call()
        took_s = time.perf_counter() - began_s
        return result, took_s, before != self._states()

    # The order of the samples

    def _order(self) -> tuple[list[Any], bool | None]:
        """The first indices, and whether its sampler draws or counts as it goes."""
        if self._batching.sampler is None:
            length = len(self._dataset) if hasattr(self._dataset, "__len__") else 1
            return list(range(max(1, min(_SAMPLES, length)))), False
        try:
            return self._through_sampler(self._batching.sampler)
        except Exception:
            return [0], None

    def _through_sampler(self, sampler: Any) -> tuple[list[Any], bool]:
        began_s = time.perf_counter()
        entries = iter(sampler)
        first = next(entries)
        before = self._states(), _state_of(sampler)
        for _ in itertools.islice(entries, _ENTRIES):
            if time.perf_counter() - began_s > _ORDER_S:
                break
        drew = before != (self._states(), _state_of(sampler))
        return list(first)[:_SAMPLES] if self._batching.is_batched else [first], drew

    # Batches

    def _collating(self, samples: list[Any]) -> tuple[bool | None, bool | None]:
        """Whether putting a batch together draws, and whether it gives the same again."""
        collate = self._batching.collate_fn
        if collate is None:
            return False, True
        try:
            given = samples if self._batching.is_batched else samples[0]
            again = copy.deepcopy(given)  # it may change what it gets
            one, _, drew = self._watched(lambda: collate(given))
            other, _, _ = self._watched(lambda: collate(again))
        except Exception:
            return None, None  # one that needs other samples, or more of them
        return drew, _alike(one, other)

    # Random states

    def _seed(self) -> None:
        self._torch.default_generator.manual_seed(0)
        if "random" in sys.modules:
            sys.modules["random"].seed(0)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(0)

    def _states(self) -> list[object]:
        found: list[object] = [_bytes_of(self._torch.default_generator)]
        if "random" in sys.modules:
            found.append(sys.modules["random"].getstate())
        if "numpy" in sys.modules:
            found.append(_plain(sys.modules["numpy"].random.get_state()))
        return found


def _bytes_of(generator: Any) -> bytes:
    return bytes(generator.get_state().numpy().tobytes())


def _plain(state: Any) -> list[object]:
    return [part.tobytes() if hasattr(part, "tobytes") else part for part in state]


def _state_of(sampler: Any) -> list[object]:
    """Of a sampler and those inside it: numbers and texts, and where the generators that it holds stand."""
    found: list[object] = []
    for item in _with_inner(sampler):
        found.append(fingerprint(item))
        found.extend(_generator_state(value) for value in vars(item).values())
    return found


def _with_inner(sampler: Any) -> Iterator[Any]:
    for _ in range(4):
        if not hasattr(sampler, "__dict__"):
            return
        yield sampler
        inner = getattr(sampler, "batch_sampler", None)
        sampler = getattr(sampler, "sampler", None) if inner is None else inner


def _generator_state(value: Any) -> object:
    """Of torch's, Python's and numpy's kinds of generator; None for all else."""
    if callable(getattr(value, "initial_seed", None)) and callable(getattr(value, "get_state", None)):
        return _bytes_of(value)
    if callable(getattr(value, "getstate", None)):
        return repr(value.getstate())
    bits = getattr(value, "bit_generator", None) or getattr(value, "_bit_generator", None)
    return repr(bits.state) if bits is not None else None


def _attributes(dataset: Any) -> dict[str, list[object]]:
    own = getattr(dataset, "__dict__", None)
    return {name: fingerprint(value) for name, value in own.items()} if isinstance(own, dict) else {}


def _first_difference(before: dict[str, list[object]], after: dict[str, list[object]]) -> str | None:
    changed = [name for name in after if before.get(name) != after[name]]
    return changed[0][:_LONGEST_NAME] if changed else None


def _alike(one: Any, other: Any) -> bool | None:
    """None where they cannot be compared."""
    from ...feed.cache.randomness import alike

    try:
        return alike(one, other) or pickle.dumps(one) == pickle.dumps(other)
    except Exception:
        return None


# Has the script changed a dataset? Numbers and texts are compared, other objects by what they are made of.

_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_DEEPEST = 4
_MOST_ITEMS = 32
_MOST = 512
_LONGEST_TEXT = 256


def fingerprint(value: Any) -> list[object]:
    """Equal as long as nothing was set that an epoch's workers would see. What is deep inside is not looked at."""
    found: list[object] = []
    _walk(value, _DEEPEST, found)
    return found


def _walk(value: Any, depth: int, found: list[object]) -> None:
    if len(found) >= _MOST:
        return
    if isinstance(value, _PLAIN):
        found.append(value[:_LONGEST_TEXT] if isinstance(value, str | bytes) else value)
        return
    # A tensor counts what was written into it.
    found.append((id(value), getattr(value, "_version", None), _length(value)))
    if depth == 0:
        return
    if isinstance(value, dict):
        items: list[Any] = list(value.values())
    elif isinstance(value, list | tuple):
        items = list(value[:_MOST_ITEMS])
    else:
        own = getattr(value, "__dict__", None)
        items = list(own.values()) if isinstance(own, dict) and not callable(own) else []
    for item in items[:_MOST_ITEMS]:
        _walk(item, depth - 1, found)


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, dict | list | tuple | set | bytearray) else None


# What a loader makes batches with.


@dataclass(frozen=True, slots=True)
class Batching:
    """What makes batches of a dataset's samples. None: as torch does."""

    collate_fn: Any = None
    sampler: Any = None
    is_batched: bool = True  # the sampler gives the indices of a batch, the collate function gets a list

    @classmethod
    def of(cls, loader: Any) -> Batching:
        collate_fn, sampler = loader.collate_fn, loader._index_sampler
        return cls(
            None if collates_as_torch(collate_fn) else collate_fn,
            None if draws_at_once(sampler) else sampler,
            loader._auto_collation,
        )


# Torch's own samplers and collate functions are known and need no probe.


def collates_as_torch(collate_fn: Any) -> bool:
    from torch.utils.data._utils import collate

    return collate_fn is collate.default_collate or collate_fn is collate.default_convert


def draws_at_once(sampler: Any) -> bool:
    """Whether it is one of torch's that draw an epoch when it begins, and give numbers from 0 on."""
    sampler = _inner_sampler(sampler)
    kind = _torch_class_name(sampler)
    if kind == "RandomSampler":
        # With a generator that it was given, draws with replacement are made as it goes.
        return not sampler.replacement or sampler.generator is None
    return kind in ("SequentialSampler", "DistributedSampler", "WeightedRandomSampler")


def may_draw_at_end(sampler: Any) -> bool:
    """Whether it may draw when its last entries are asked for: torch's does so from a generator that it was given."""
    sampler = _inner_sampler(sampler)
    kind = _torch_class_name(sampler)
    if kind == "RandomSampler":
        return sampler.generator is not None
    return kind not in ("SequentialSampler", "DistributedSampler", "WeightedRandomSampler", "SubsetRandomSampler")


def _inner_sampler(sampler: Any) -> Any:
    return sampler.sampler if _torch_class_name(sampler) == "BatchSampler" else sampler


def _torch_class_name(sampler: Any) -> str | None:
    """The name of torch's own class, None for all others."""
    # The cache of samples has one made a kind of its own, to know the order.
    kind = type(sampler).__mro__[1] if "_flatout_publish" in getattr(sampler, "__dict__", {}) else type(sampler)
    return kind.__name__ if kind.__module__.startswith("torch.utils.data.") else None
