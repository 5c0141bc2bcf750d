"""What a dataset caches of its samples, and how often that is of use: looked at now and then, from outside.

Nothing of the user's is ever called. Only plain dicts and their plain keys, plain integers, and the counters of
`functools.lru_cache` are read, where they are stored.
"""

from __future__ import annotations

import functools
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import PurePath
from typing import Any

from ..recorder import Output
from ..sites import is_users

_DEEPEST = 3
_MOST_ATTRIBUTES, _MOST_OBJECTS, _MOST_CACHES = 64, 40, 4
# Keys of a larger dict are not compared: that would take milliseconds.
_MOST_KEYS = 20_000
# A look that takes this long is the last one.
_TOO_LONG_S = 0.02
_HITS = frozenset(("hits", "hit", "n_hits", "num_hits", "hit_count", "cache_hits"))
_MISSES = frozenset(("misses", "miss", "n_misses", "num_misses", "miss_count", "cache_misses"))
_CALLED_CACHE = ("cach", "memo", "lru")
_PLAIN = (int, str, bytes, float, bool, type(None), PurePath)
_WRAPPER = type(functools.lru_cache(len))


class _CacheCounts:
    """One cache: what it counted when it was met, and what single fetches were seen to put into it."""

    def __init__(self, base: tuple[int, int] | None) -> None:
        self.base = base  # hits and misses
        self.asked = base
        self.keys: frozenset[int] | None = None  # before the fetch that is under way
        self.first: tuple[int, int] | None = None  # new keys and samples of the first fetch
        self.new = self.thrown_out = self.samples = 0


class DatasetCaches:
    """The caches of one dataset in this process, looked at before and after one fetch and then left alone for a while.

    Two looks around one fetch see all that it put in and threw out; looks further apart would miss what came and went.
    """

    def __init__(self, number: int, output: Callable[[], Output]) -> None:
        self._number = number  # of the dataset, in this process
        self._output = output
        self._watched: dict[str, _CacheCounts] = {}
        self._found: list[tuple[str, str, Any]] = []  # while a fetch is under way: to look for them takes longest
        self._off = False

    def look_before(self, dataset: Any) -> None:
        if self._off:
            return
        begun = time.perf_counter()
        try:
            self._found = list(islice(_caches(dataset), _MOST_CACHES))
            for name, kind, cache in self._found:
                self._before(name, kind, cache)
        except Exception:
            self._off = True  # something odd in the user's objects: these figures are gone, nothing else
        self._off = self._off or time.perf_counter() - begun > _TOO_LONG_S

    def look_after(self, samples: int, fetched: int) -> None:
        """A fetch of `fetched` samples is over; `samples` were fetched in this process so far."""
        found, self._found = self._found, []
        try:
            for name, kind, cache in found:
                self._after(name, kind, cache, samples, fetched)
        except Exception:
            self._off = True

    def _before(self, name: str, kind: str, cache: Any) -> None:
        known = self._watched.get(name)
        if known is None:
            known = self._watched[name] = _CacheCounts(_counts(kind, cache))
        if kind == "dict":
            known.keys = _keys(cache)

    def _after(self, name: str, kind: str, cache: Any, samples: int, fetched: int) -> None:
        known = self._watched.get(name)
        if known is None or not samples:
            return
        counted = _counts(kind, cache)
        if kind == "dict":
            keys, before = _keys(cache), known.keys
            known.keys = None
            if keys is None or before is None or (keys == before and not known.samples):
                return  # too large, or a table that nothing is ever added to
            known.new += len(keys - before)
            known.thrown_out += len(before - keys)
            known.samples += fetched
            known.first = known.first or (len(keys - before), fetched)
        elif counted == known.asked:
            return
        known.asked = counted
        entries, capacity = _size(kind, cache)
        value = {
            "name": name,
            "dataset": self._number,
            "kind": kind,
            "entries": entries,
            "capacity": capacity,
            "hits": counted[0] - known.base[0] if counted and known.base else None,
            "misses": counted[1] - known.base[1] if counted and known.base else None,
            "new_keys": known.new,
            "thrown_out": known.thrown_out,
            "seen_samples": known.samples,
            "first": known.first,
            "samples": samples,
        }
        self._output().text("cache", value)


def _counts(kind: str, cache: Any) -> tuple[int, int] | None:
    if kind == "lru_cache":
        info = cache.cache_info()
        return info.hits, info.misses
    if kind == "counters":
        stored, hits, misses = cache
        return stored[hits], stored[misses]
    return None


def _size(kind: str, cache: Any) -> tuple[int, int | None]:
    if kind == "lru_cache":
        info = cache.cache_info()
        return info.currsize, info.maxsize
    return (0, None) if kind == "counters" else (len(cache), None)


def _keys(cache: dict[Any, Any]) -> frozenset[int] | None:
    """By their hashes, so that nothing of the user's is held; None where there are too many."""
    if len(cache) > _MOST_KEYS:
        return None
    try:
        return frozenset(hash(key) for key in cache if _is_plain(key))
    except RuntimeError:
        return None  # a thread of the user's is putting something in


def _is_plain(key: object) -> bool:
    return isinstance(key, _PLAIN) or (type(key) is tuple and all(isinstance(part, _PLAIN) for part in key))


def _caches(dataset: Any) -> Iterator[tuple[str, str, Any]]:
    """Name, kind and the thing itself: of the dataset, of objects it holds, of its classes and its module."""
    met: set[int] = set()
    around = [(type(dataset).__qualname__, dataset, 0)]
    while around and len(met) < _MOST_OBJECTS:
        name, owner, depth = around.pop(0)
        if id(owner) in met:
            continue
        met.add(id(owner))
        yield from _of_classes(owner, met)
        attributes = stored_attributes(owner)
        yield from _of_attributes(name, owner, attributes)
        if depth < _DEEPEST:
            around += [
                (f"{name}.{key}", value, depth + 1)
                for key, value in attributes
                if _is_users_module(type(value).__module__)
            ]
            around += [(name, value, depth + 1) for key, value in attributes if key == "dataset"]


def _of_attributes(name: str, owner: Any, attributes: list[tuple[str, Any]]) -> Iterator[tuple[str, str, Any]]:
    numbers = {key.strip("_").lower(): key for key, value in attributes if type(value) is int}
    hits = next((key for plain, key in numbers.items() if plain in _HITS), None)
    misses = next((key for plain, key in numbers.items() if plain in _MISSES), None)
    if hits is not None and misses is not None:
        yield name, "counters", (object.__getattribute__(owner, "__dict__"), hits, misses)
    yield from _among((f"{name}.{key}", value) for key, value in attributes)


def _among(named: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, str, Any]]:
    for name, value in named:
        if type(value) in (dict, OrderedDict) and any(word in name.lower() for word in _CALLED_CACHE):
            yield name, "dict", value
        elif isinstance(value, _WRAPPER):
            yield name, "lru_cache", value


def _of_classes(owner: Any, met: set[int]) -> Iterator[tuple[str, str, Any]]:
    """Functions under `lru_cache`: methods, and functions of the module; dicts there that are called a cache."""
    for kind in type(owner).__mro__:
        module = sys.modules.get(kind.__module__)
        if not _is_users_module(kind.__module__) or id(kind) in met:
            continue
        met.add(id(kind))
        for key, value in list(vars(kind).items()):
            if isinstance(value, _WRAPPER):
                yield f"{kind.__qualname__}.{key}", "lru_cache", value
        if module is None or id(module) in met:
            continue
        met.add(id(module))
        yield from _among(list(vars(module).items()))


def stored_attributes(owner: Any) -> list[tuple[str, Any]]:
    """As they are stored: a property would be code of the user's."""
    try:
        stored = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return []
    return [(key, value) for key, value in list(stored.items())[:_MOST_ATTRIBUTES] if isinstance(key, str)]


@functools.lru_cache(maxsize=512)
def _is_users_module(name: object) -> bool:
    module = sys.modules.get(name) if isinstance(name, str) else None
    file = vars(module).get("__file__") if module is not None else None
    return isinstance(file, str) and is_users(file)
