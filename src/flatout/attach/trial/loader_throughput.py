"""The throughput of the script's loaders alone: how fast batches come when nothing is done with them.

The first steps train as usual, which shows the loaders in use and how many batches of each a step takes. The script
never gets the next batch that it requests: from there on batches are taken from its own iterators, in the same order as
in a step, one right after the other. A loader that is exhausted begins again. Then the trial is over.
"""

from __future__ import annotations

import math
import os
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from ..batch import Path, count_again
from ..patching import Patches

# The first step is left out, as scripts do all kinds of things before it. An even number of others, for loaders that
# alternate.
_WATCHED_STEPS = 8
TAKES_OVER_AFTER = 1 + _WATCHED_STEPS
# Some steps take no batch: this is how many steps to wait for one.
_GIVES_UP_AFTER = 4 * TAKES_OVER_AFTER
# Without a step for two minutes a trial is taken to hang.
_MOST_S = 60.0
# A shorter measurement says little, however fast the batches come. At most this many steps are recorded.
_LEAST_S = 1.0
_MOST_STEPS = 4000
# Prefetched batches would overstate the throughput: they are taken first, for this share of the time at most.
_DRAINED_SHARE = 1 / 3
# Workers that waited for a free slot start together and deliver in bursts: several bursts are measured.
_BURSTS = 4


class Source:
    """A loader, or those that a script makes one after the other for the same purpose.

    By weak references: an iterator belongs to the script, and workers of a loader kept alive end slowly.
    """

    def __init__(self, loader: Any) -> None:
        self.kind = type(loader), type(loader.dataset), loader.batch_size
        self.path: Path = ()
        self.move_to(loader)

    def move_to(self, loader: Any) -> None:
        self.loader = weakref.ref(loader)
        self.iterator: Callable[[], Any] = lambda: None

    @property
    def is_there(self) -> bool:
        return self.loader() is not None or self.iterator() is not None

    def size_of(self, batch: Any, asked: int) -> float:
        """Samples in a batch, NaN where they cannot be told."""
        self.path, size = count_again(self.path, batch, asked)
        return size or math.nan


# The batches of one step, by where they come from.
Turn = tuple[Source, ...]


class LoaderThroughput:
    """Looks on for a few steps, then takes the script's batches. `done` is told their figures and does not return."""

    def __init__(self, torch: Any, steps: int, seconds: float, done: Callable[[dict[str, object]], None]) -> None:
        self._torch = torch
        self._steps = steps
        self._seconds = min(seconds, _MOST_S)
        self._done = done
        self._pid = os.getpid()
        self._sources: list[Source] = []
        self._asked: list[Source] = []
        self._turns: deque[Turn] = deque(maxlen=_WATCHED_STEPS)
        self._count = 0
        self._has_batches = self._is_at_work = self._is_over = False

    def install(self, module: Any, patches: Patches) -> None:
        """`module` is torch.utils.data.dataloader. After all others: a batch counts once it is what the script gets."""
        patches.put(module._BaseDataLoaderIter, "_flatout_source", None)
        patches.replace(module.DataLoader, "__iter__", self._make_iter)
        for kind in (module._MultiProcessingDataLoaderIter, module._BaseDataLoaderIter):
            patches.replace(kind, "__next__", self._make_next)

    def end_step(self, count: int) -> bool:
        """The furthest optimizer has made `count` steps. Returns whether waiting any longer is of no use."""
        if self._is_at_work:
            return False  # batches are fetched by another thread, and there were some left
        if count > self._count:
            self._count = count
            if count > 1:
                self._turns.append(tuple(self._asked))
            self._asked.clear()
        is_without = count > TAKES_OVER_AFTER and not self._has_batches
        return self._is_over or is_without or count > _GIVES_UP_AFTER

    def _make_iter(self, original: Any) -> Any:
        def __iter__(loader: Any) -> Any:
            iterator = original(loader)
            # Some loaders give iterators of their own, and those are not known.
            if not self._is_at_work and hasattr(iterator, "_flatout_source"):
                source = self._source_of(loader)
                source.iterator = weakref.ref(iterator)
                iterator._flatout_source = source
                if getattr(loader, "_iterator", None) is not iterator:
                    # A loop may hold its iterator only, and the loader is needed to begin anew.
                    iterator._flatout_loader_kept = loader
            return iterator

        return __iter__

    def _source_of(self, loader: Any) -> Source:
        for source in self._sources:
            if source.loader() is loader:
                return source
        new = Source(loader)
        for source in self._sources:
            if source.loader() is None and source.kind == new.kind:
                source.move_to(loader)
                return source
        self._sources.append(new)
        return new

    def _make_next(self, original: Callable[[Any], Any]) -> Any:
        def __next__(iterator: Any) -> Any:
            source = iterator._flatout_source
            if self._is_at_work or self._is_over or source is None or not self._torch.is_grad_enabled():
                return original(iterator)
            if self._count >= TAKES_OVER_AFTER and os.getpid() == self._pid:
                self._take_over(iterator)
            batch = original(iterator)
            self._has_batches = True
            self._asked.append(source)
            return batch

        return __next__

    def _take_over(self, asked: Any) -> None:
        """`asked` is the iterator that the script waits for."""
        turns = self._usual_turns()
        if not any(turns):
            return
        self._is_at_work = True
        try:
            self._done(self._measure(_BatchReader(turns, asked)))
        except Exception:
            # The loader's own failure, and the script's to deal with. There is no second attempt.
            self._is_over, self._is_at_work = True, False
            raise

    def _usual_turns(self) -> list[Turn]:
        """The turns to repeat. One that was seen only once had something else in it, such as an evaluation.

        Empty while one of their loaders is gone: the script may be about to make it again.
        """
        seen = Counter(self._turns)
        usual = [turn for turn in self._turns if seen[turn] > 1]
        turns = usual if any(usual) else list(self._turns)
        return turns if all(source.is_there for turn in turns for source in turn) else []

    def _measure(self, reader: _BatchReader) -> dict[str, object]:
        if self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()
        ahead = reader.steps_ahead()
        drained_s, _ = reader.take(lambda steps, s: steps >= ahead or s > _DRAINED_SHARE * self._seconds)
        wanted, left_s = max(self._steps, _BURSTS * ahead), self._seconds - sum(drained_s)

        def is_enough(steps: int, s: float) -> bool:
            return steps >= _MOST_STEPS or s > left_s or (steps >= wanted and s > _LEAST_S)

        seconds, samples = reader.take(is_enough)
        # NaN is no JSON.
        known = [None if math.isnan(size) else size for size in samples]
        return {"seconds": seconds, "samples": known, "drained": len(drained_s), "epochs": reader.epochs}


class _BatchReader:
    """Takes the batches of one step after the other. `asked` is the iterator the script has just asked."""

    def __init__(self, turns: list[Turn], asked: Any) -> None:
        self._turns = turns
        self._steps = 0
        self._iterators = {source: source.iterator() for turn in turns for source in turn}
        self._iterators[asked._flatout_source] = asked
        self.epochs = 0

    def steps_ahead(self) -> int:
        """For how many steps there may be batches already."""
        taken = Counter(source for turn in self._turns for source in turn)
        ahead = {source: _batches_ahead(self._iterators[source]) for source in taken}
        return max(math.ceil(ahead[source] * len(self._turns) / count) for source, count in taken.items())

    def take(self, is_enough: Callable[[int, float], bool]) -> tuple[list[float], list[float]]:
        """Seconds and samples of each step, until the count and the seconds of all are enough, or no batch comes."""
        seconds: list[float] = []
        samples: list[float] = []
        began_s = now_s = time.perf_counter()
        while not is_enough(len(seconds), now_s - began_s):
            turn = self._turns[self._steps % len(self._turns)]
            try:
                size = sum(self._size_of_next(source) for source in turn)
            except _NoBatches:
                break
            self._steps += 1
            before_s, now_s = now_s, time.perf_counter()
            seconds.append(now_s - before_s)
            samples.append(size)
        return seconds, samples

    def _size_of_next(self, source: Source) -> float:
        iterator = self._iterators[source]
        try:
            batch = next(iterator) if iterator is not None else self._begin_anew(source)
        except StopIteration:
            batch = self._begin_anew(source)
        return source.size_of(batch, getattr(self._iterators[source], "_flatout_asked", 0))

    def _begin_anew(self, source: Source) -> Any:
        loader = source.loader()
        if loader is None:
            raise _NoBatches
        self.epochs += 1
        iterator = self._iterators[source] = iter(loader)
        try:
            return next(iterator)
        except StopIteration:
            raise _NoBatches from None


class _NoBatches(Exception):
    """A loader gives none, not even when it begins anew."""


def _batches_ahead(iterator: Any) -> int:
    """Two for each worker, unless the loader says otherwise, and those on their way to the device."""
    workers = getattr(iterator, "_num_workers", 0)
    each = getattr(iterator, "_prefetch_factor", None) or 2
    return workers * each + 2 if workers else 0
