"""One pass over the data: draws indices as torch does, hands them out sample by sample, returns batches in order."""

from __future__ import annotations

import math
import os
import time
import warnings
import weakref
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

from .crew import Crew, Member
from .inbox import Arrival, Inbox, PinningInbox
from .messages import SLOW, UNSENDABLE
from .schedule import Epoch, Schedule
from .stuck import describe

_LOOK_AROUND_S = 1.0
# Batches that have come are taken in at least so often: how many there are is asked by those who judge a loader's pace.
_LOOK_IN_S = 0.02


class Ready:
    """Stands where torch keeps its queue of results: tells how many batches are ready."""

    def __init__(self, iterator: FeedIterator | None = None) -> None:
        self.batches: dict[int, Any] = {}
        # It holds this, and would stay until a collection.
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
        # Where batches are pinned torch has two, and who counts adds them up: all of ours lie in the one.
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
            # What iterators made anew would draw here.
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
        """All its batches were given out."""
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
        """Take what has come, without waiting for more."""
        if now_s - self._looked_in_s < _LOOK_IN_S or self._shutdown or os.getpid() != self._owner:
            return
        self._looked_in_s = now_s
        arrivals = self._inbox.now()
        for arrival in arrivals:
            self._take(arrival)
        if arrivals:
            self._schedule.send()

    def _receive(self) -> None:
        """Wait until something has come of the workers."""
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
            warnings.warn(describe(self._crew, self._schedule, waited_s), RuntimeWarning, stacklevel=4)

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
        """So many go when they have finished what they are at; `fill_up` puts others in their places."""
        self._schedule.let_go(workers)

    def fill_up(self) -> bool:
        """Whether all that were to go have gone, and others are in their places."""
        began_s = time.perf_counter()
        dead = self._crew.ended()
        if dead:
            self._mend(dead)
        if len(self._crew.members) < self._num_workers:
            self._crew.fill_up(self._num_workers)
            self._tell_watcher(began_s)
        return not self._crew.leaving

    def _tell_watcher(self, began_s: float) -> None:
        """Whoever watches this loader knows its workers from the epoch's beginning; there are others now."""
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
