"""What a sample costs where it is made: in the loader's workers, or in the main process with none."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from . import wire
from .batch import size_of
from .patching import Patches

clock = time.perf_counter_ns
_PACK = wire.packer("fetch").pack
_KIND = wire.KINDS["fetch"][0]
_UNKNOWN_LOADER = 0xFFFFFFFF  # a worker is matched to its loader by its process id
_WRITE_EVERY_NS = 50_000_000
_FIRST_INTERVAL_NS = 1_000_000_000
_LONGEST_INTERVAL_NS = 10_000_000_000
# A fetch this quick is measured only now and then: timing it would cost as much as the fetch.
_QUICK_NS = 100_000
_SKIPPED_WHEN_QUICK = 15


class Output(Protocol):
    def append(self, body: bytes) -> int: ...
    def put(self, place: int, body: bytes) -> int: ...


class Meter:
    """Running totals of one fetcher. A record is written over until its interval is past, then a new one begins."""

    def __init__(self, worker: int, output: Callable[[], Output], collate: Callable[[Any], Any]) -> None:
        self._worker = worker
        self._output = output
        self._collate = collate
        self._interval_ns = _FIRST_INTERVAL_NS
        self._collate_ns = 0
        self.skip = 0  # fetches to pass over before the next one is measured
        self._begin(clock())

    def _begin(self, now: int) -> None:
        self._place = -1
        self._start = self._last_end = now
        self._next_write = 0
        self._batches = self._samples = self._fetch = self._collated = self._max = self._idle = 0

    def collate(self, samples: Any) -> Any:
        """Stands in for the loader's collate function, and times it."""
        if self.skip:
            return self._collate(samples)
        begun = clock()
        batch = self._collate(samples)
        self._collate_ns = clock() - begun
        return batch

    def add(self, samples: int, begun: int, ended: int) -> None:
        took = ended - begun
        self._batches += 1
        self._samples += samples
        self._collated += self._collate_ns
        self._fetch += took - self._collate_ns
        self._collate_ns = 0
        self._idle += max(0, begun - self._last_end)
        self._last_end = ended
        if took > self._max:
            self._max = took
        if ended >= self._next_write:
            self._write(ended)
        if took < _QUICK_NS:
            self.skip = _SKIPPED_WHEN_QUICK

    def _write(self, now: int) -> None:
        body = _PACK(
            _KIND, 0, 0, _UNKNOWN_LOADER, self._worker, self._start, now, self._batches, self._samples,
            self._fetch, self._collated, self._max, self._idle,
        )  # fmt: skip
        self._place = self._output().put(self._place, body)
        self._next_write = now + _WRITE_EVERY_NS
        if now - self._start > self._interval_ns:
            self._interval_ns = min(2 * self._interval_ns, _LONGEST_INTERVAL_NS)
            self._begin(now)


class FetchWatch:
    """Patches of the classes that call a dataset's `__getitem__` and collate."""

    def __init__(
        self,
        worker_info: Callable[[], Any],
        output: Callable[[], Output],
        enter_worker: Callable[[Any], None],
        trouble: Callable[[Exception], None],
    ) -> None:
        self._worker_info = worker_info
        self._output = output
        self._enter_worker = enter_worker
        self._trouble = trouble

    def install(self, module: Any, patches: Patches) -> None:
        """`module` is torch.utils.data._utils.fetch."""
        patches.replace(module._BaseDatasetFetcher, "__init__", self._make_init)
        patches.replace(module._MapDatasetFetcher, "fetch", self._make_fetch)
        patches.replace(module._IterableDatasetFetcher, "fetch", self._make_fetch)

    def _make_init(self, original: Any) -> Any:
        def __init__(fetcher: Any, *args: Any, **kwargs: Any) -> None:
            original(fetcher, *args, **kwargs)
            try:
                info = self._worker_info()
                if info is not None:
                    self._enter_worker(info)
                meter = Meter(-1 if info is None else info.id, self._output, fetcher.collate_fn)
                fetcher.collate_fn = meter.collate
                fetcher._flatout_meter = meter
            except Exception as error:
                self._trouble(error)

        return __init__

    def _make_fetch(self, original: Any) -> Any:
        trouble = self._trouble

        def fetch(fetcher: Any, index: Any) -> Any:
            meter = fetcher.__dict__.get("_flatout_meter")
            if meter is None:
                return original(fetcher, index)
            if meter.skip:
                batch = original(fetcher, index)
                meter.skip -= 1
                return batch
            begun = clock()
            batch = original(fetcher, index)
            try:
                meter.add(len(index) if fetcher.auto_collation else size_of(batch) or 1, begun, clock())
            except Exception as error:
                trouble(error)
            return batch

        return fetch
