"""Where the device's time goes, from pooled CUDA events that are only ever queried, never waited for.

Between two events recorded around the wait for a batch, the device's own timeline shows how long it had nothing to do:
with work still queued both complete together (0), with an empty queue they lie apart by the wait.
Short steps are sampled at random: closely at first, so that a short run has samples enough (of very short steps there
will be many soon), and then only as often as a fixed share of the time allows, by what a sample was measured to cost.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from . import wire

clock = time.perf_counter
_PACK = wire.packer("device").pack
_KIND = wire.KINDS["device"][0]
_NAN = float("nan")
REQUEST, ARRIVED, BACKWARD_BEGINS, BACKWARD_ENDS, OPTIMIZER_ENDS, END = range(6)
_MOST_PENDING = 16  # samples waiting for the device to catch up; beyond that sampling pauses
_SAMPLE_EVERY_S = 0.005
# Samples: of steps at least that long, and of shorter ones, of which one sample (0.4 ms on an H200) is a good part.
_CLOSELY_AT_FIRST, _OF_SHORT_STEPS = 64, 24
_BUDGET = 0.002  # of the training thread's time, from then on
_LONGEST_PERIOD = 64


class _Sample:
    def __init__(self, make_event: Callable[[], Any]) -> None:
        self.events = [make_event() for _ in range(6)]
        self.index = self.marked = self.boundaries = self.drained = 0
        self.loaderless = False


class DeviceClock:
    """Samples the device timeline of some steps. Does nothing until the script has initialised CUDA."""

    def __init__(self, torch: Any, append: Callable[[bytes], int]) -> None:
        self._cuda = torch.cuda
        self._is_capturing = torch.cuda.is_current_stream_capturing
        self._append = append
        self._make_event = lambda: torch.cuda.Event(enable_timing=True)
        self._random = random.Random(20260)  # our own: the script's random state is not ours to move
        self._free: list[_Sample] = []
        self._pending: deque[_Sample] = deque()
        self.sample: _Sample | None = None  # the open one
        self._is_paused = False
        self._countdown = 1
        self.ready = False
        self._requests = self._index = 0
        self._iterating = self._loaderless = False
        self._step_s = self._own_s = self._cost_s = 0.0
        self._taken = 0
        self._last_s = clock()

    def request(self) -> None:
        """A batch, or an iterator, is asked for."""
        self._requests += 1
        if self._iterating:
            self._iterating = False  # the wait for a new iterator and for its first batch is one wait
            return
        if self.sample is not None:
            if self.sample.loaderless:
                self.drop()
            else:
                self.finish()
        self._maybe_begin(loaderless=False)

    def rests(self) -> None:
        """The steps that follow are only counted."""
        if self.sample is not None and self.sample.loaderless:
            self.drop()

    def wakes(self, steps: int) -> None:
        """That many steps were only counted."""
        self._index += steps
        if self._loaderless and steps:
            self._maybe_begin(loaderless=True)

    def arrived(self) -> None:
        if self.sample is not None:
            self._mark(ARRIVED, look=False)

    def backward_begins(self) -> None:
        sample = self.sample
        if sample is not None and not sample.marked & 1 << BACKWARD_BEGINS:
            self._mark(BACKWARD_BEGINS, look=True)

    def backward_ends(self) -> None:
        if self.sample is not None:
            self._mark(BACKWARD_ENDS, look=True)

    def iterator_made(self) -> None:
        self._iterating = True

    def optimizer_ends(self, resting: bool = False) -> None:
        """A step is over; `resting`: the next ones are likely only counted."""
        self._index += 1
        sample = self.sample
        if sample is not None:
            self._mark(OPTIMIZER_ENDS, look=True)
        self._loaderless = self._requests == 0
        if self._loaderless:
            # Without a loader a sample runs from one optimizer step to the next.
            if sample is not None:
                self.finish()
            if not resting:
                self._maybe_begin(loaderless=True)
        self._requests = 0

    def is_capturing(self) -> bool:
        """Is a CUDA graph being captured? Never asks a CUDA that the script has not initialised."""
        return self.ready and bool(self._is_capturing())

    def take_own_s(self) -> float:
        """What sampling has cost since this was last asked."""
        own_s, self._own_s = self._own_s, 0.0
        self._cost_s += own_s
        return own_s

    def pause(self) -> None:
        """The step that follows is none like others: it is looked at closely."""
        self._is_paused = True
        self.drop()

    def go_on(self) -> None:
        self._is_paused = False

    def drop(self) -> None:
        """Give the open sample up: its step did not take the usual course."""
        if self.sample is not None:
            self._free.append(self.sample)
            self.sample = None

    def _maybe_begin(self, loaderless: bool) -> None:
        now = clock()
        # A running mean, so that one evaluation or a first compile does not set the pace.
        step_s = now - self._last_s
        self._step_s += (min(step_s, 4 * self._step_s) - self._step_s) / 8 if self._step_s else step_s
        self._last_s = now
        self._countdown -= 1
        if self._countdown > 0 or self._is_paused:
            return
        self.ready = self.ready or self._cuda.is_initialized()
        if not self.ready:
            return
        self._harvest()
        period = min(_LONGEST_PERIOD, self._sample_every_s() / (self._step_s + 1e-9))
        self._countdown = 1 if period <= 1 else 1 + int(self._random.random() * 2 * period)
        if len(self._pending) >= _MOST_PENDING:
            return
        sample = self._free.pop() if self._free else _Sample(self._make_event)
        sample.index, sample.loaderless = self._index, loaderless
        sample.marked = sample.boundaries = sample.drained = 0
        self.sample = sample
        self._taken += 1
        self._own_s += clock() - now
        self._mark(REQUEST, look=True)

    def _sample_every_s(self) -> float:
        if self._taken < (_CLOSELY_AT_FIRST if self._step_s >= _SAMPLE_EVERY_S else _OF_SHORT_STEPS):
            return _SAMPLE_EVERY_S
        return max(_SAMPLE_EVERY_S, (self._cost_s + self._own_s) / self._taken / _BUDGET)

    def _mark(self, which: int, look: bool) -> None:
        begun = clock()
        sample = self.sample
        assert sample is not None
        if self.is_capturing():
            # An event recorded now would become part of the user's graph.
            self.drop()
            return
        stream = self._cuda.current_stream()
        if look:
            sample.boundaries += 1
            sample.drained += stream.query()
        sample.events[which].record(stream)
        sample.marked |= 1 << which
        self._own_s += clock() - begun

    def finish(self) -> None:
        """The open sample ends here: with the request of the next batch, also in a step that is only counted."""
        self._mark(END, look=False)
        if self.sample is not None:
            self._pending.append(self.sample)
            self.sample = None

    def _harvest(self) -> None:
        while self._pending and not self.is_capturing() and self._pending[0].events[END].query():
            sample = self._pending.popleft()
            try:
                self._append(self._body(sample))
            except RuntimeError:
                pass  # events of two devices in one step cannot be compared
            self._free.append(sample)

    def _body(self, sample: _Sample) -> bytes:
        def between(a: int, b: int) -> float:
            if not (sample.marked >> a & 1 and sample.marked >> b & 1):
                return _NAN
            return float(sample.events[a].elapsed_time(sample.events[b]))

        forward_from = REQUEST if sample.loaderless else ARRIVED
        return _PACK(
            _KIND, 0, 0, sample.index,
            between(REQUEST, ARRIVED),
            between(forward_from, BACKWARD_BEGINS),
            between(BACKWARD_BEGINS, BACKWARD_ENDS),
            between(BACKWARD_ENDS, OPTIMIZER_ENDS),
            between(OPTIMIZER_ENDS, END),
            between(REQUEST, END),
            sample.boundaries, sample.drained,
        )  # fmt: skip

    def close(self) -> None:
        """Take what is ready at the end of the process, without waiting for the rest."""
        if self.ready:
            self._harvest()
