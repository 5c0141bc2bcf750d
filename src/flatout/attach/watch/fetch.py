"""What a sample costs where it is loaded: in the loader's workers, or in the training process without workers."""

from __future__ import annotations

import os
import stat
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import PurePath
from typing import Any

from .. import wire
from ..batch import count_samples
from ..context import Context
from ..imports import after_import
from ..patching import guard
from ..recorder import Output
from .caches import DatasetCaches, stored_attributes
from .lines import SamplerWatch, WorkerSampler

clock = time.perf_counter_ns
_PACK = wire.packer("fetch").pack
_KIND = wire.KINDS["fetch"][0]
_UNKNOWN_LOADER = 0xFFFFFFFF  # a worker is matched to its loader by its process id
_WRITE_EVERY_NS = 50_000_000
_FIRST_INTERVAL_NS = 1_000_000_000
_LONGEST_INTERVAL_NS = 10_000_000_000
_QUICK_NS = 200_000
_FIRST_LOOK_NS = 100_000_000
# Looks at caches get rarer by this factor, and never take more than this part of the time.
_SLOWER = 1.3
_COST_RATIO = 500
_NEVER_NS = 1 << 62
_MOST_DATASETS = 7


class FetchMeter:
    """Running totals of one fetcher. A record is written over until its interval is past, then a new one begins.

    It stands in for the fetcher's `fetch` and `collate_fn` while it measures. In the training process quick fetches
    are measured only now and then: the rest of the time the fetcher is left as it was made, at no cost.
    """

    def __init__(self, fetcher: Any, worker: int, watch: FetchWatch, schedule: CacheSchedule, context: Context) -> None:
        self._fetcher = weakref.ref(fetcher)
        self._watch = watch
        self._schedule = schedule
        self._fetch_original = fetcher.fetch
        self._collate_original = fetcher.collate_fn
        self._worker = worker
        self._output, self._trouble = context.output, context.trouble
        self._interval_ns = _FIRST_INTERVAL_NS
        self._collate_ns = 0
        self._armed = False
        self._begin(clock())

    def _begin(self, now: int) -> None:
        self._place = -1
        self._start = self._last_end = now
        self._next_write = 0
        self._batches = self._samples = self._fetch_ns = self._collated_ns = self._max_ns = self._idle_ns = 0

    def arm(self) -> None:
        fetcher = self._fetcher()
        if fetcher is not None and not self._armed:
            fetcher.fetch, fetcher.collate_fn = self._fetch, self._collate
            self._armed = True
            self._last_end = clock()

    def _disarm(self) -> None:
        fetcher = self._fetcher()
        if fetcher is not None:
            del fetcher.fetch
            fetcher.collate_fn = self._collate_original
        self._armed = False

    def _collate(self, samples: Any) -> Any:
        begun = clock()
        batch = self._collate_original(samples)
        self._collate_ns = clock() - begun
        return batch

    def _fetch(self, index: Any) -> Any:
        watch, schedule = self._watch, self._schedule
        before, watch.fetching = watch.fetching, True
        begun = clock()
        if begun >= schedule.before_ns:
            guard(schedule.look_before, self._trouble)
            begun = clock()
        try:
            batch = self._fetch_original(index)
        finally:
            watch.fetching = before
        try:
            fetcher = self._fetcher()
            whole = fetcher is not None and fetcher.auto_collation
            self._add(len(index) if whole else count_samples(batch) or 1, begun, clock())
        except Exception as error:
            self._trouble(error)
        return batch

    def _add(self, samples: int, begun: int, ended: int) -> None:
        took = ended - begun
        self._batches += 1
        self._samples += samples
        self._collated_ns += self._collate_ns
        self._fetch_ns += took - self._collate_ns
        self._collate_ns = 0
        self._idle_ns += max(0, begun - self._last_end)
        self._last_end = ended
        self._max_ns = max(self._max_ns, took)
        self._schedule.samples += samples
        if ended >= self._schedule.after_ns:
            self._schedule.look_after(ended, samples)
        if ended >= self._next_write:
            self._write(ended)
        if self._worker < 0 and took < _QUICK_NS:
            self._disarm()

    def _write(self, now: int) -> None:
        body = _PACK(
            _KIND, 0, 0, _UNKNOWN_LOADER, self._worker, self._start, now, self._batches, self._samples,
            self._fetch_ns, self._collated_ns, self._max_ns, self._idle_ns,
        )  # fmt: skip
        self._place = self._output().put(self._place, body)
        self._next_write = now + _WRITE_EVERY_NS
        if now - self._start > self._interval_ns:
            self._interval_ns = min(2 * self._interval_ns, _LONGEST_INTERVAL_NS)
            self._begin(now)


class CacheSchedule:
    """What one dataset keeps: looked at around its first fetch, and then around one now and then."""

    def __init__(self, dataset: Any, number: int, output: Callable[[], Output]) -> None:
        self.samples = 0
        # When to look next: before or after a fetch.
        self.before_ns, self.after_ns = 0, _NEVER_NS
        self._interval_ns, self._cost_ns = _FIRST_LOOK_NS, 0
        self._dataset = _reference(dataset)
        self._caches = DatasetCaches(number, output)

    def is_of(self, dataset: Any) -> bool:
        return self._dataset() is dataset

    def look_before(self) -> None:
        dataset = self._dataset()
        begun = clock()
        if dataset is not None:
            self._caches.look_before(dataset)
        self._cost_ns = clock() - begun
        self.before_ns, self.after_ns = _NEVER_NS, 0

    def look_after(self, now: int, fetched: int) -> None:
        self._caches.look_after(self.samples, fetched)
        self._cost_ns += clock() - now
        self._interval_ns = min(int(_SLOWER * self._interval_ns), _LONGEST_INTERVAL_NS)
        self.before_ns, self.after_ns = now + max(self._interval_ns, _COST_RATIO * self._cost_ns), _NEVER_NS


def _reference(dataset: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(dataset)
    except TypeError:
        return lambda: None  # a plain list, or a class with slots: nothing of it is kept alive, nothing looked at


class FetchWatch(SamplerWatch):
    """Meters every fetcher: the objects that call a dataset's `__getitem__` and collate."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.fetching = False  # just now, in this process
        self._meters: weakref.WeakSet[FetchMeter] = weakref.WeakSet()
        self._schedules: list[CacheSchedule] = []
        self._datasets = 0

    def install(self) -> None:
        after_import("torch.utils.data._utils.fetch", self._patch)

    def _patch(self, module: Any) -> None:
        self._patches.replace(module._BaseDatasetFetcher, "__init__", self._make_init)

    def at_step_end(self, codes: Sequence[int], index: int, now: float) -> bool:
        """Measure the next fetch of each fetcher again."""
        for meter in list(self._meters):
            meter.arm()
        return False

    def at_fork(self) -> None:
        """What was fetched before the fork was not fetched here."""
        super().at_fork()
        self._schedules = []
        self.fetching = False

    def _enter_worker(self, info: Any) -> None:
        """This process turns out to be a loader's worker: only the cost of samples is of interest here."""
        context = self._context
        context.enter_worker(info)
        # All workers of a loader run the same code: the first speaks for all.
        if context.lines_hz > 0 and info.id == 0 and self._sampler is None:
            root = FetchMeter._fetch.__code__
            self._sampler = WorkerSampler(lambda: self.fetching, root, context.open_lines, context.lines_hz)
            self._sampler.start()

    def _make_init(self, original: Any) -> Any:
        def __init__(fetcher: Any, *args: Any, **kwargs: Any) -> None:
            original(fetcher, *args, **kwargs)
            try:
                from torch.utils.data import get_worker_info

                info = get_worker_info()
                if info is not None:
                    self._enter_worker(info)
                worker = -1 if info is None else info.id
                schedule = self._schedule_of(fetcher.dataset, worker)
                meter = FetchMeter(fetcher, worker, self, schedule, self._context)
                fetcher._flatout_meter = meter
                self._meters.add(meter)
                meter.arm()
            except Exception as error:
                self._trouble(error)

        return __init__

    def _schedule_of(self, dataset: Any, worker: int) -> CacheSchedule:
        """One per dataset of a process: what a dataset caches outlives an epoch."""
        for schedule in self._schedules:
            if schedule.is_of(dataset):
                return schedule
        self._datasets += 1
        schedule = CacheSchedule(dataset, self._datasets, self._output)
        self._schedules = [*self._schedules[-_MOST_DATASETS:], schedule]
        sizes = sample_file_sizes(dataset) if worker <= 0 else []
        if sizes:
            self._output().text("files", {"bytes": sizes})
        return schedule


# How large the files are that a dataset names: a few of them are looked at, once.

_MOST_FILES = 6
_MOST_ENTRIES = 64
_DEEPEST = 3
_LONGEST = 4096


def sample_file_sizes(dataset: Any) -> list[int]:
    """Bytes of some of the files in its lists of paths, or in the folders it names; empty where it names none."""
    values = [value for _, value in stored_attributes(dataset)]
    lists = (_some(value) for value in values if type(value) in (list, tuple))
    folders = (_inside(str(value)) for value in values if _is_path(value))
    for paths in chain[Iterable[Any]](lists, folders):
        found = [size for path in paths if (size := _size(path)) is not None]
        if found:
            return found
    return []


def _some(values: Any) -> Iterator[Any]:
    """Spread over the list; of a pair of path and label, the path."""
    every = max(1, len(values) // _MOST_FILES)
    for value in list(values[::every])[:_MOST_FILES]:
        parts = value if type(value) is tuple else (value,)
        yield from [part for part in parts if _is_path(part)][:1]


def _is_path(value: Any) -> bool:
    return isinstance(value, str | PurePath) and 0 < len(str(value)) < _LONGEST


def _inside(folder: str, depth: int = 0) -> list[str]:
    """Files of a folder, or of the first folder in it. Only its first entries are read: there may be millions."""
    try:
        with os.scandir(folder) as entries:
            seen = list(islice(entries, _MOST_ENTRIES))
        files = [entry.path for entry in seen if entry.is_file()]
        folders = sorted(entry.path for entry in seen if entry.is_dir())
    except (OSError, ValueError):
        return []
    if files or not folders or depth == _DEEPEST:
        return files[:_MOST_FILES]
    return _inside(folders[0], depth + 1)


def _size(path: Any) -> int | None:
    try:
        facts = os.stat(path)
    except (OSError, ValueError):
        return None
    return facts.st_size if stat.S_ISREG(facts.st_mode) else None
