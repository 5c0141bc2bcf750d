"""What a sample costs where it is loaded: in the loader's workers, or in the training process without workers."""

from __future__ import annotations

import os
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from multiprocessing import queues
from pathlib import PurePath
from threading import get_ident
from types import CodeType, FrameType, GeneratorType
from typing import Any

from .. import wire
from ..batch import carried_bytes, count_samples
from ..context import Context
from ..imports import after_import
from ..patching import guard
from ..recorder import Output
from ..sites import MOST_FRAMES, is_users, user_frame
from ..wire import COLLATE, HANDOVER, ORDER, PIPE, ROOM, SAMPLES, UNKNOWN_NATURE
from .caches import DatasetCaches, stored_attributes
from .lines import UNCOLLECTED, At, Sampler, SamplerWatch, frames_of_others, place_of

clock = time.perf_counter_ns
# What a look costs is not how long others had the processor meanwhile.
cpu_clock = time.thread_time_ns
_PACK = wire.packer("fetch").pack
_KIND = wire.KINDS["fetch"][0]
_UNKNOWN_LOADER = 0xFFFFFFFF  # a worker is matched to its loader by its process id
_WRITE_EVERY_NS = 50_000_000
_EACH_AT_FIRST = 8
_FIRST_INTERVAL_NS = 1_000_000_000
_LONGEST_INTERVAL_NS = 10_000_000_000
_QUICK_NS = 200_000
_FIRST_LOOK_NS = 100_000_000
# Looks at caches get rarer by this factor, and never take more than this part of the time.
_SLOWER = 1.3
_COST_RATIO = 500
_NEVER_NS = 1 << 62
_MOST_DATASETS = 7
_NOT_KNOWN = (-1, -1)
# The batch of a worker whose memory is looked at first, and how much rarer each look is than the one before. What a
# dataset keeps and gives away in parts is copied with the first batch, and shared from then on.
_FIRST_WEIGHED, _RARER = 3, 1.5


class FetchMeter:
    """Running totals of one fetcher. A record is written over until its interval is past, then a new one begins.

    It stands in for the fetcher's `fetch` and `collate_fn` while it measures. In the training process quick fetches
    are measured only now and then: the rest of the time the fetcher is left as it was made, at no cost.
    """

    def __init__(self, fetcher: Any, worker: int, is_first: bool, schedule: CacheSchedule, context: Context) -> None:
        self._fetcher = weakref.ref(fetcher)
        self._schedule = schedule
        self._fetch_original = fetcher.fetch
        self._collate_original = fetcher.collate_fn
        self._worker = worker
        self._output, self._trouble = context.output, context.trouble
        self._interval_ns = _FIRST_INTERVAL_NS
        self._collate_ns = 0
        self._armed = False
        self._is_first = is_first
        self._to_write = _EACH_AT_FIRST
        # Batches of the training process are handed to nobody.
        self._until_weighed = self._since_weighed = _FIRST_WEIGHED if worker >= 0 else 0
        # In the training process the thread does more than fetch.
        self._scheduling = Scheduling() if worker >= 0 else None
        self._begin(clock())

    def _begin(self, now: int) -> None:
        self._place = -1
        self._start = self._last_end = now
        self._next_write = 0
        self._batches = self._samples = self._fetch_ns = self._collated_ns = self._max_ns = self._idle_ns = 0
        self._first_ns = self._first_samples = 0
        if self._scheduling is not None:
            self._scheduling.begin()

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
        schedule = self._schedule
        begun = clock()
        if begun >= schedule.before_ns:
            guard(schedule.look_before, self._trouble)
            begun = clock()
        batch = self._fetch_original(index)
        try:
            fetcher = self._fetcher()
            whole = fetcher is not None and fetcher.auto_collation
            self._add(len(index) if whole else count_samples(batch) or 1, begun, clock())
            self._until_weighed -= 1
            if self._until_weighed == 0:
                self._weigh(fetcher, batch)
        except Exception as error:
            self._trouble(error)
        return batch

    def _weigh(self, fetcher: Any, batch: Any) -> None:
        """Note the memory that this batch takes along, and what of it the batch shows."""
        batches = self._since_weighed
        self._until_weighed = self._since_weighed = int(_RARER * batches)
        try:
            shown, carried = carried_bytes(batch)
        except Exception:
            return  # a batch whose attributes raise when looked at
        at = handed_out_at(fetcher) if shown < carried else None
        note = {"shown": shown, "carried": carried, "batches": batches, "at": at}
        self._output().text("carried", note)

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
        if self._is_first:
            self._is_first, self._first_ns, self._first_samples = False, took, samples
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
            *(_NOT_KNOWN if self._scheduling is None else self._scheduling.read()), self._first_ns, self._first_samples,
        )  # fmt: skip
        self._place = self._output().put(self._place, body)
        # A worker of a short epoch is killed before long.
        self._to_write -= 1
        self._next_write = 0 if self._to_write > 0 else now + _WRITE_EVERY_NS
        if now - self._start > self._interval_ns:
            self._interval_ns = min(2 * self._interval_ns, _LONGEST_INTERVAL_NS)
            self._begin(now)


class Scheduling:
    """What the kernel counts of this thread since `begin`: ns on a processor, and ready to run but not running."""

    def __init__(self) -> None:
        self._began: tuple[int, int] | None = None
        try:
            self._fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def begin(self) -> None:
        self._began = self._count()

    def read(self) -> tuple[int, int]:
        began, now = self._began, self._count()
        return _NOT_KNOWN if began is None or now is None else (now[0] - began[0], now[1] - began[1])

    def _count(self) -> tuple[int, int] | None:
        try:
            run_ns, delay_ns, *_ = map(int, os.pread(self._fd, 64, 0).split())
        except (OSError, ValueError):
            return None
        return (run_ns, delay_ns) if run_ns or delay_ns else None  # a kernel that does not count


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
        begun = cpu_clock()
        if dataset is not None:
            self._caches.look_before(dataset)
        self._cost_ns = cpu_clock() - begun
        self.before_ns, self.after_ns = _NEVER_NS, 0

    def look_after(self, now: int, fetched: int) -> None:
        begun = cpu_clock()
        self._caches.look_after(self.samples, fetched)
        self._cost_ns += cpu_clock() - begun
        self._interval_ns = min(int(_SLOWER * self._interval_ns), _LONGEST_INTERVAL_NS)
        self.before_ns, self.after_ns = now + max(self._interval_ns, _COST_RATIO * self._cost_ns), _NEVER_NS


def handed_out_at(fetcher: Any) -> tuple[str, int] | None:
    """Where the user's dataset hands a sample out: the `yield` it stands at, or the last line of its `__getitem__`."""
    at = getattr(fetcher, "dataset_iter", None)
    found = None
    while isinstance(at, GeneratorType):
        if at.gi_frame is not None and is_users(at.gi_code.co_filename):
            found = (at.gi_code.co_filename, at.gi_frame.f_lineno)
        at = at.gi_yieldfrom
    code = getattr(getattr(type(fetcher.dataset), "__getitem__", None), "__code__", None)
    if found is None and isinstance(code, CodeType) and is_users(code.co_filename) and not hasattr(at, "__next__"):
        found = (code.co_filename, max(line for *_, line in code.co_lines() if line))
    return None if found is None else (os.path.abspath(found[0]), found[1])


def _reference(dataset: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(dataset)
    except TypeError:
        return lambda: None  # a plain list, or a class with slots: nothing of it is kept alive, nothing looked at


class FetchWatch(SamplerWatch):
    """Meters every fetcher: the objects that call a dataset's `__getitem__` and collate."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._meters: weakref.WeakSet[FetchMeter] = weakref.WeakSet()
        self._schedules: list[CacheSchedule] = []
        self._datasets = 0
        self._has_met = False  # a fetcher, in this process

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
        self._has_met = False

    def _enter_worker(self, info: Any) -> None:
        """This process turns out to be a loader's worker: only the cost of samples is of interest here."""
        context = self._context
        context.enter_worker(info)
        # All workers of a loader run the same code: the first speaks for all.
        if context.lines_hz > 0 and info.id == 0 and self._sampler is None:
            fetch, collate = FetchMeter._fetch.__code__, FetchMeter._collate.__code__
            self._sampler = WorkerSampler(fetch, collate, context.open_lines, context.lines_hz)
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
                meter = FetchMeter(fetcher, worker, not self._has_met, schedule, self._context)
                self._has_met = True
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
    """Files of a folder, or of the first folder in it if those are more: samples, beside which others may lie.

    Only the first entries are read: there may be millions.
    """
    try:
        with os.scandir(folder) as entries:
            seen = list(islice(entries, _MOST_ENTRIES))
        files = [entry.path for entry in seen if entry.is_file()]
        folders = sorted(entry.path for entry in seen if entry.is_dir())
    except (OSError, ValueError):
        return []
    within = _inside(folders[0], depth + 1) if folders and depth < _DEEPEST else []
    return max(files[:_MOST_FILES], within, key=len)


def _size(path: Any) -> int | None:
    try:
        facts = os.stat(path)
    except (OSError, ValueError):
        return None
    return facts.st_size if stat.S_ISREG(facts.st_mode) else None


# What a loader's worker does: which stage of its work, which lines of the dataset, the transforms and the collate
# function, and what for: Python, native code, or waiting.
#
# One worker of a loader is enough, as all run the same code. What is seen is written at once, because a worker may be
# killed at any moment.


# The loops of torch's own workers and of those of flatout's loader, by module.
_LOOPS = {"torch.utils.data._utils.worker": "_worker_loop", "flatout.feed.worker": "serve"}
# Functions called from these loops, one within the other: the innermost of them tells the stage.
_CALLED = {
    "torch.utils.data._utils.worker": {"get": ORDER},
    "flatout.feed.worker": {
        "_next_task": ORDER,
        "_work": SAMPLES,
        "_fetch": SAMPLES,
        "_join": HANDOVER,
        "_finish": COLLATE,
        "__call__": COLLATE,
        "_pack": HANDOVER,
        "_answer": HANDOVER,
    },
}
# Functions that write to a pipe or socket: who is found there waits until somebody reads.
_SENDS = frozenset(("_send", "_send_bytes"))
_FEEDER: CodeType = queues.Queue._feed.__code__  # type: ignore[attr-defined]


class WorkerSampler(Sampler):
    """Made in the worker, by the thread that fetches. `fetch` and `collate` are what it runs then."""

    def __init__(self, fetch: CodeType, collate: CodeType, make_output: Callable[[], Output], hz: float) -> None:
        super().__init__(make_output, hz)
        self._fetch, self._collate = fetch, collate
        self._thread_id = get_ident()
        self._watch_thread(self._thread_id)

    def _look(self, seconds: float) -> None:
        with UNCOLLECTED:
            seen = self._read_stack()
        if seen is not None:
            at, stage, nature = seen
            self._put(self._add(self._line_of(at, stage, nature), seconds), stage, nature)

    def _read_stack(self) -> tuple[At, int, int] | None:
        """Where the thread that fetches is, at which stage, and doing what."""
        frames = frames_of_others()
        innermost = frames.get(self._thread_id)
        found = self._find_stage(innermost)
        if innermost is None or found is None:
            return None
        stage, frame = found
        nature = self._nature(innermost)
        if stage == ORDER:
            stage, nature = _stage_of_feeder(frames.values()), UNKNOWN_NATURE
        elif stage == HANDOVER and nature == PIPE and innermost.f_code.co_name in _SENDS:
            stage = ROOM
        return place_of(frame), stage, nature

    def _find_stage(self, innermost: FrameType | None) -> tuple[int, FrameType] | None:
        """The stage, and the frame that stands for it: in a fetch the user's own. None where it is in neither loop.

        A forked worker's stack goes on with that of the process it was forked from, so the search must end at the loop.
        """
        at, depth, stage = innermost, 0, SAMPLES
        called: list[FrameType] = []
        while at is not None and depth < MOST_FRAMES:
            code = at.f_code
            if code is self._collate:
                stage = COLLATE
            elif code is self._fetch:
                return stage, user_frame(innermost, depth) or at
            module = at.f_globals.get("__name__", "")
            if _LOOPS.get(module) == code.co_name:
                stage = _stage_in_loop(module, called[::-1])
                own = user_frame(innermost, depth) if stage in (SAMPLES, COLLATE) else None
                return stage, own or at
            called = [*called[-2:], at]
            at, depth = at.f_back, depth + 1
        return None


def _stage_in_loop(module: str, called: list[FrameType]) -> int:
    """By the functions that the loop has called, the outermost first. Outside of all of them it gives a batch away."""
    stage, known = HANDOVER, _CALLED[module]
    for frame in called:
        if frame.f_code.co_name not in known:
            break
        stage = known[frame.f_code.co_name]
    return stage


def _stage_of_feeder(frames: Iterable[FrameType]) -> int:
    """What a worker that waits for an order does meanwhile: torch's hand batches over in a thread of their own."""
    for innermost in frames:
        at: FrameType | None = innermost
        depth = 0
        while at is not None and depth < MOST_FRAMES and at.f_code is not _FEEDER:
            at, depth = at.f_back, depth + 1
        if at is not None and at.f_code is _FEEDER and innermost.f_code.co_filename != threading.__file__:
            return ROOM if innermost.f_code.co_name in _SENDS else HANDOVER
    return ORDER
