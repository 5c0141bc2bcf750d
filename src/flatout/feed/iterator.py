"""One pass over the data: draws indices as torch does, hands them out sample by sample, returns batches in order."""

from __future__ import annotations

import math
import os
import queue
import select
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

from .crew import Crew, Member
from .leaves import pin_batch
from .memory import NO_SEGMENT
from .messages import SLOW, UNSENDABLE, Answer, read_answer, unpack
from .schedule import Epoch, Schedule

_LOOK_AROUND_S = 1.0
# Arrived batches are taken in at least this often: whoever judges a loader's pace asks how many are ready.
_LOOK_IN_S = 0.02


class Ready:
    """In the place of torch's queue of results: tells how many batches are ready."""

    def __init__(self, iterator: FeedIterator | None = None) -> None:
        self.batches: dict[int, Any] = {}
        # Weak: the iterator holds this object, and a cycle would keep its workers until a collection.
        self._iterator = weakref.ref(iterator) if iterator is not None else lambda: None

    def qsize(self) -> int:
        iterator = self._iterator()
        if iterator is not None:
            iterator.look_in(time.perf_counter())
        return len(self.batches)


class FeedIterator(_MultiProcessingDataLoaderIter):
    """Takes torch's place behind `iter(loader)`. Nothing of the base's own machinery is started."""

    STUCK_AFTER_S = 30.0

    _shutdown = True
    _told_stuck = False

    def __init__(self, loader: Any, feed: Any, crew: Crew) -> None:
        # The base of the base draws what torch draws, in torch's order: the sampler's iterator, then the base seed.
        _BaseDataLoaderIter.__init__(self, loader)
        # Not kept alive: it holds this iterator when its workers live on, and both would stay until a collection.
        self.loader = weakref.ref(loader)
        self.batch_size = loader.batch_size or 1
        self._feed = feed
        self._crew = crew
        self._owner = os.getpid()
        self._prefetch_factor = loader.prefetch_factor
        self._queue = Ready(self)
        self._looked_in_s = 0.0
        self._data_queue: Any = self._queue
        # With pinning torch has two queues, and watchers add them up: all of our batches are in the first.
        self._worker_result_queue: Any = Ready()
        self._seed = int(self._base_seed)
        self._schedule = Schedule(crew, feed.costs)
        self._restarts = 0
        crew.grow(self._num_workers, self._seed)
        self._inbox: Inbox | PinningInbox = self._make_inbox()
        self._shutdown = False
        self._reset(loader, first_iter=True)

    @property
    def _workers(self) -> list[Any]:  # type: ignore[override]  # a list there, always the present ones here
        return [member.process for member in self._crew.members.values()]

    def _make_inbox(self) -> Inbox | PinningInbox:
        if not self._pin_memory:
            return Inbox(self._crew)
        return PinningInbox(self._crew, torch.cuda.current_device() if torch.cuda.is_available() else None)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if not first_iter and self._feed.compensate:
            # What a new iterator would draw here.
            self._sampler_iter = iter(self._index_sampler)
            self._seed = int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item())
        if self._feed.draws_late:
            self._num_yielded = 0
        else:
            # Asks the sampler once more, as torch's does where there are workers.
            _BaseDataLoaderIter._reset(self, loader, first_iter)
        self._ready = self._queue.batches = {}
        self._sent = self._next = self._feed.skipped
        self._exhausted = False
        self._last_from = self._length() - self._feed.ahead(self) // 2
        self._in_turn_from = self._length() - (not self._drop_last) if self._feed.last_in_turn else math.inf
        self._feed.begin_epoch()
        self._schedule.begin(Epoch(self._feed.epoch, self._seed))
        if not self._feed.draws_late:
            self._fill()

    @property
    def is_used_up(self) -> bool:
        return self._exhausted and self._next >= self._sent

    def _length(self) -> float:
        try:
            return len(self._index_sampler)
        except TypeError:
            return math.inf

    def _fill(self, is_asked: bool = False) -> None:
        """Keep as many batches in flight as torch would. `is_asked`: there is none, and one is waited for."""
        window = self._feed.ahead(self)
        while not self._exhausted and self._sent - self._next < window:
            if self._sent >= self._in_turn_from and not (is_asked and self._sent == self._next):
                break
            try:
                indices = next(self._sampler_iter)
            except StopIteration:
                self._exhausted = True
                break
            self._schedule.add(self._sent, indices, window, self._sent >= self._last_from)
            self._sent += 1
        self._schedule.send()

    def _next_data(self) -> Any:
        began = time.perf_counter()
        self.look_in(began)
        while self._next not in self._ready:
            if self._next >= self._sent:
                if not self._exhausted:
                    self._fill(is_asked=True)
                    continue
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            self._receive()
            self._tell_if_stuck(time.perf_counter() - began)
        batch = self._ready.pop(self._next)
        self._next += 1
        self._feed.note_wait(self, began, time.perf_counter())
        self._fill()
        if isinstance(batch, ExceptionWrapper):
            batch.reraise()
        return batch

    def look_in(self, now_s: float) -> None:
        if now_s - self._looked_in_s < _LOOK_IN_S or self._shutdown or os.getpid() != self._owner:
            return
        self._looked_in_s = now_s
        arrivals = self._inbox.now()
        for arrival in arrivals:
            self._take(arrival)
        if arrivals:
            self._schedule.send()

    def _receive(self) -> None:
        limit_s = self._timeout or _LOOK_AROUND_S
        deadline = time.monotonic() + limit_s
        while True:
            arrivals = self._inbox.get(deadline - time.monotonic(), self._schedule.has_backlog)
            for arrival in arrivals:
                self._take(arrival)
            self._schedule.send()
            dead = [] if arrivals else self._crew.ended()
            if dead:
                self._mend(dead)
            if arrivals:
                return
            if time.monotonic() >= deadline:
                if self._timeout:
                    raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
                return

    def _tell_if_stuck(self, waited_s: float) -> None:
        if waited_s > self.STUCK_AFTER_S and not self._told_stuck:
            self._told_stuck = True
            warnings.warn(describe_stuck(self._crew, self._schedule, waited_s), RuntimeWarning, stacklevel=4)

    def _take(self, arrival: Arrival) -> None:
        answer = arrival.answer
        if answer.kind == SLOW:
            self._feed.costs.note_slow(answer.ticket)
            return
        self._feed.learn(answer)
        if answer.kind == UNSENDABLE:
            self._schedule.load_whole(answer.ticket)
            return
        batch = self._schedule.in_flight.get(answer.ticket)
        if batch is not None:  # not of an epoch that was left, nor loaded twice
            self._ready[batch.number] = arrival.batch
            self._schedule.finish(batch)

    def _mend(self, dead: list[Member]) -> None:
        """Replace dead workers and load their samples again, unless that has been tried enough."""
        for arrival in self._inbox.get(0.0, False):
            self._take(arrival)
        for member in dead:
            indices, deaths = self._schedule.blame(member.seat)
            self._restarts += 1
            told = f"DataLoader worker {member.worker} (pid {member.process.pid}) {member.ending()} {_at(indices)}"
            if deaths > 1 or self._restarts > self._feed.restarts:
                before = f"; {self._restarts - 1} were replaced before"
                why = "; the second time on this sample" if deaths > 1 else before
                self._shutdown_workers()
                raise RuntimeError(told + why)
            warnings.warn(f"{told}; another one takes its place and loads it again", RuntimeWarning, stacklevel=4)
        self._schedule.replay([member.seat for member in dead])
        began_s = time.perf_counter()
        for member in dead:
            self._crew.replace_member(member)
        self._tell_watcher(began_s)
        self._schedule.send()

    def resize(self, workers: int) -> None:
        """Have that many workers from now on; the order of batches does not depend on it."""
        began_s = time.perf_counter()
        too_many = len(self._crew.members) - self._crew.leaving - workers
        self._num_workers = workers
        if too_many > 0:
            self._schedule.let_go(too_many)
        else:
            self._crew.grow(workers, self._seed)
        self._tell_watcher(began_s)
        self._fill()

    def renew(self, workers: int) -> None:
        """Let this many leave after the sample they are loading; `fill_up` replaces them."""
        self._schedule.let_go(workers)

    def fill_up(self) -> bool:
        """Replace those that have left; whether all of them have."""
        began_s = time.perf_counter()
        dead = self._crew.ended()
        if dead:
            self._mend(dead)
        if len(self._crew.members) < self._num_workers:
            self._crew.fill_up(self._num_workers)
            self._tell_watcher(began_s)
        return not self._crew.leaving

    def _tell_watcher(self, began_s: float) -> None:
        """Watchers know the workers of the epoch's beginning: tell them about new ones."""
        watcher, loader = getattr(self, "_flatout_on_workers", None), self.loader()
        if watcher is not None and loader is not None:
            watcher(loader, self._workers, began_s)

    def _shutdown_workers(self) -> None:
        if self._shutdown or os.getpid() != self._owner:
            return
        self._shutdown = True
        self._inbox.close()
        self._crew.shutdown()

    def __del__(self) -> None:
        self._shutdown_workers()


def _at(indices: list[Any]) -> str:
    if not indices:
        return "between two samples"
    return f"while it loaded sample{'s' if len(indices) > 1 else ''} {', '.join(map(repr, indices))}"


# Batches as they arrive: read by the loop that waits for them, or by a thread that pins them first.

# Batches that the caller keeps are copied out when there are so many that workers would run out of segments.
_MOST_HELD = 256
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Arrival:
    """An answer and the object that came with it."""

    answer: Answer
    batch: Any


def _receive(crew: Crew) -> Arrival | None:
    try:
        packet = crew.answers.recv(4096)
    except BlockingIOError:
        return None
    answer = read_answer(packet)
    if answer.place.number == NO_SEGMENT:
        return Arrival(answer, None)
    memory = crew.memory
    buffer = memory.open(answer.place) if memory.held < _MOST_HELD else memory.copy(answer.place)
    try:
        return Arrival(answer, unpack(buffer, answer.place))
    except Exception:
        # Raised where the batch is asked for, like a worker's error.
        return Arrival(answer, ExceptionWrapper(where="while a batch was received"))


class Inbox:
    """Read when a batch is asked for."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    def get(self, timeout_s: float, tasks_too: bool) -> list[Arrival]:
        """What has arrived. Comes back early when a worker has ended or a task can be sent."""
        arrivals = self.now()
        if not arrivals and self._crew.wait(timeout_s, tasks_too):
            arrivals = self.now()
        return arrivals

    def now(self) -> list[Arrival]:
        arrivals = []
        while (arrival := _receive(self._crew)) is not None:
            arrivals.append(arrival)
        return arrivals

    def close(self) -> None:
        return


class PinningInbox:
    """Read by a thread, which pins every batch."""

    def __init__(self, crew: Crew, device: int | None, pin: Callable[[Any], Any] = pin_batch) -> None:
        self._crew = crew
        self._pin = pin
        self._device = device
        self._arrived: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flatout-pin", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        torch.set_num_threads(1)
        if self._device is not None:
            torch.cuda.set_device(self._device)
        poller = select.poll()
        poller.register(self._crew.answers, select.POLLIN)
        while not self._closed.is_set():
            if not poller.poll(_POLL_S * 1000):
                continue
            arrival = _receive(self._crew)
            if arrival is not None:
                self._arrived.put(self._pinned(arrival))
                del arrival  # or the segment would stay taken until the next batch comes

    def _pinned(self, arrival: Arrival) -> Arrival:
        if isinstance(arrival.batch, ExceptionWrapper):
            return arrival
        try:
            return Arrival(arrival.answer, self._pin(arrival.batch))
        except Exception:
            return Arrival(arrival.answer, ExceptionWrapper(where="in pin memory thread"))

    def get(self, timeout_s: float, tasks_too: bool) -> list[Arrival]:
        try:
            first = self._arrived.get(timeout=min(max(timeout_s, 0.001), _POLL_S))
        except queue.Empty:
            return []
        return [first, *self.now()]

    def now(self) -> list[Arrival]:
        return [self._arrived.get_nowait() for _ in range(self._arrived.qsize())]

    def close(self) -> None:
        self._closed.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)


# Which worker makes no progress, and why: a lock inherited by fork, a network that does not answer.

_LOCKED = (
    "it waits for a lock and computes nothing: perhaps one that a thread held when the worker was forked, as OpenMP's "
    "and OpenCV's do (cv2.setNumThreads(0), or multiprocessing_context='forkserver')"
)
_WAITING = "it waits and computes nothing: a file system or network that does not answer?"
_WORKING = "it is computing"
_STOPPED = "it was stopped by a signal"


def describe_stuck(crew: Crew, schedule: Schedule, waited_s: float) -> str:
    """One sentence per worker that is in the middle of something."""
    told = []
    for member in crew.members.values():
        work = schedule.work_of(member.seat)
        if work is not None:
            samples = ", ".join(map(repr, work.indices))
            pid = member.process.pid
            told.append(f"worker {member.worker} (pid {pid}) is loading sample {samples}: {_doing(pid)}")
    return f"DataLoader has waited {waited_s:.0f} s for a batch; " + ("; ".join(told) or "no worker has taken a sample")


def _doing(pid: int, proc: Path = Path("/proc")) -> str:
    try:
        state = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
        if state in "Tt":
            return _STOPPED
        if state == "R":
            return _WORKING
        return _LOCKED if "futex" in (proc / str(pid) / "wchan").read_text() else _WAITING
    except OSError:
        return _WAITING
