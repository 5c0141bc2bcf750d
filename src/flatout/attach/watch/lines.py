"""The line sampler: which line of the user's code a thread is in, and in which phase.

A daemon thread wakes up at irregular times and looks at one stack. It measures what that costs and slows down to stay
within its budget. It writes a recording of its own, because a recording has one writer.

A thread that runs Python releases the interpreter when it calls something that does, or when it is forced to after the
switch interval (5 ms). A look that is due in between comes late and falls on the call, not on the Python before it,
which would then seem up to 5 ms shorter than it is. Looks that had to force a switch tell which lines hold the
interpreter; looks that came late because of it are counted for these lines."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from threading import get_ident
from types import CodeType, FrameType

from .. import tracer as ev
from .. import wire
from ..context import Watcher
from ..phases import PENDING, Phases
from ..recorder import Output
from ..sites import MOST_FRAMES, user_frame
from ..tracer import Tracer
from ..wire import BACKWARD, CHECKPOINT, DATA, EVAL, FORWARD, GC, H2D, LOGGING, OPTIMIZER, OTHER, SYNC

THREAD_NAME = "flatout-lines"
_PACK = wire.packer("line").pack
_KIND = wire.KINDS["line"][0]
_BEAT = wire.packer("beat").pack
_BEAT_KIND = wire.KINDS["beat"][0]
_BUDGET = 0.0015  # of one core, the sampler's own CPU time; waking the training thread costs about as much again
_SHORTEST_S, _LONGEST_S = 0.01, 1.0
_WRITE_EVERY_S = 1.0
# Of the switch interval: a look that comes later than this had to wait for the interpreter.
_LATE = 0.1
_HOLDERS_KEPT = 200


class _Line:
    __slots__ = ("dirty", "number", "place", "samples", "seconds")

    def __init__(self, number: int) -> None:
        self.number = number
        self.samples, self.seconds = 0, 0.0
        self.place, self.dirty = -1, False


class Sampler(ABC):
    """Runs until `stop`; `make_output` is called when there is first something to write.

    A subclass says in `_look` which thread is looked at, and when.
    """

    def __init__(self, make_output: Callable[[], Output], hz: float) -> None:
        self._make_output = make_output
        self._interval_s = self._shortest_s = max(_SHORTEST_S, 1 / hz)
        self._random = random.Random(20261)
        self._lines: dict[tuple[str, int, int], _Line] = {}
        self._late_s = 0.0
        self._numbers: dict[tuple[str, int], int] = {}
        self._samples = 0
        self._own_s = self._cpu_s = 0.0
        self._output: Output | None = None
        self._stopped = False
        self._at_work = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take_own_s(self) -> float:
        """Processor time it took since this was last asked: for that long it kept the training thread waiting."""
        own_s, self._own_s = self._own_s, 0.0
        return own_s

    def stop(self) -> None:
        """Write what is left. The thread is not waited for: it finds itself stopped when it wakes."""
        with self._at_work:
            if not self._stopped:
                self._stopped = True
                self._write()
                if self._output is not None:
                    self._output.close()

    def forget(self) -> None:
        """In a forked child there is no thread of this sampler, and its recording is the parent's."""
        # Not under the lock: the thread may have held it at the fork.
        if self._output is not None:
            self._output.close()

    def _run(self) -> None:
        try:
            last = time.perf_counter()
            next_write = last + _WRITE_EVERY_S
            while True:
                pause_s = self._interval_s * (0.5 + self._random.random())
                due = time.perf_counter() + pause_s
                # A bare sleep: waiting on an event would run a screenful of Python at each wake-up.
                time.sleep(pause_s)
                with self._at_work:
                    if self._stopped:
                        return
                    now = time.perf_counter()
                    self._late_s = now - due
                    self._samples += 1
                    self._look(now - last)
                    last = now
                    if now >= next_write:
                        self._write()
                        self._keep_to_budget()
                        next_write = now + _WRITE_EVERY_S
                        cpu_s = time.thread_time()
                        self._own_s += cpu_s - self._cpu_s
                        self._cpu_s = cpu_s
        except Exception:
            self._stopped = True  # a sampler that fails must not take the training with it

    @abstractmethod
    def _look(self, seconds: float) -> None:
        """Look once; `seconds` have passed since the last look."""

    def _line_of(self, frame: FrameType, phase: int) -> _Line:
        key = (*place_of(frame), phase)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(self._number(key[0], key[1], frame.f_code.co_name))
        return line

    def _add(self, line: _Line, seconds: float) -> _Line:
        line.samples += 1
        line.seconds += seconds
        line.dirty = True
        return line

    def _number(self, filename: str, lineno: int, function: str) -> int:
        number = self._numbers.get((filename, lineno))
        if number is None:
            number = self._numbers[filename, lineno] = len(self._numbers)
            value = {"id": number, "file": os.path.abspath(filename), "line": lineno, "function": function}
            self._get_output().text("line", value)
        return number

    def _get_output(self) -> Output:
        if self._output is None:
            self._output = self._make_output()
        return self._output

    def _write(self) -> None:
        for (_, _, phase), line in self._lines.items():
            if line.dirty:
                self._put(line, phase)

    def _put(self, line: _Line, phase: int) -> None:
        body = _PACK(_KIND, 0, 0, line.number, phase, line.samples, line.seconds)
        line.place = self._get_output().put(line.place, body)
        line.dirty = False

    def _keep_to_budget(self) -> None:
        """Sample less often where a sample is expensive, more often again where it is cheap."""
        cost_s = time.thread_time() / max(1, self._samples)
        self._interval_s = min(_LONGEST_S, max(self._shortest_s, cost_s / _BUDGET))


def place_of(frame: FrameType) -> tuple[str, int]:
    return frame.f_code.co_filename, frame.f_lineno or frame.f_code.co_firstlineno


class LineSampler(Sampler):
    """Looks at the thread that trains."""

    def __init__(self, tracer: Tracer, phases: Phases, make_output: Callable[[], Output], hz: float) -> None:
        super().__init__(make_output, hz)
        self._tracer = tracer
        self._phases = phases
        self._phase_of: dict[tuple[str, int], int] = {}
        # By phase: the lines that did not let go of the interpreter until they were made to.
        self._holders: dict[int, list[_Line]] = {}
        self._switch_s = sys.getswitchinterval()
        self._beat = -1
        self._is_first_step = True

    def _look(self, seconds: float) -> None:
        if self._is_first_step and self._tracer.ended:
            self._is_first_step = False
            self._forget()
        frame = user_frame(sys._current_frames().get(self._tracer.owner))
        phase = self._phase(place_of(frame)) if frame is not None else None
        if frame is None or phase is None:
            return
        self._add(self._find_holder(self._line_of(frame, phase), phase), seconds)
        # Of several ranks that end together, the one whose heart stopped first was the first to fail.
        self._beat = self._get_output().put(self._beat, _BEAT(_BEAT_KIND, 0, 0, time.perf_counter_ns(), phase))

    def _forget(self) -> None:
        """Forget what lines took in the first step: it loads kernels and modules, which no other step does.

        An evaluation before it is not recognised yet, and its lines would pass for those of the forward.
        """
        for line in self._lines.values():
            line.samples, line.seconds, line.dirty = 0, 0.0, True
        self._holders.clear()

    def _find_holder(self, line: _Line, phase: int) -> _Line:
        """The line this look is of: another one, if that held the interpreter when the look was due."""
        holders = self._holders.setdefault(phase, [])
        if self._late_s >= self._switch_s:
            holders.append(line)
            del holders[:-_HOLDERS_KEPT]
        elif holders and self._late_s >= _LATE * self._switch_s:
            return self._random.choice(holders)
        return line

    def _phase(self, place: tuple[str, int]) -> int | None:
        """The phase that is open now; between two steps looked at closely, the one this line was seen in before."""
        tracer = self._tracer
        if tracer.is_resting:
            return self._phase_of.get(place)
        phase = tracer.inside if tracer.inside >= 0 else current_phase(tracer.codes[-16:], self._phases.cur)
        if phase == PENDING:
            phase = self._phases.pending_becomes
        self._phase_of[place] = phase
        return phase


class SamplerWatch(Watcher):
    """A watcher that may have a sampler at work."""

    _sampler: Sampler | None = None

    def at_fork(self) -> None:
        if self._sampler is not None:
            self._sampler.forget()
            self._sampler = None

    def at_stop(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()
            self._sampler = None


class LineWatch(SamplerWatch):
    """Samples the training thread as soon as it is known."""

    def at_begin(self) -> None:
        context = self._context
        if context.lines_hz > 0 and self._sampler is None:
            self._sampler = LineSampler(context.tracer, context.phases, context.open_lines, context.lines_hz)
            self._sampler.start()

    def take_own_s(self) -> float:
        return self._sampler.take_own_s() if self._sampler is not None else 0.0


# The phase that is open now, read from another thread while events are still unread.

_ENTERED_PHASES = {
    ev.ENTER_CLOSURE: FORWARD,
    ev.ENTER_GRAD: BACKWARD,
    ev.ENTER_H2D: H2D,
    ev.ENTER_SYNC: SYNC,
    ev.ENTER_SYNC_NO_GRAD: SYNC,
    ev.ENTER_CHECKPOINT: CHECKPOINT,
    ev.ENTER_LOGGING: LOGGING,
    ev.ENTER_GC: GC,
}
_BASE_PHASES = {
    ev.REQUEST: DATA,
    ev.REQUEST_NO_GRAD: EVAL,
    ev.EXHAUSTED: OTHER,
    ev.ITERATOR_MADE: OTHER,
    ev.BACKWARD_BEGINS: BACKWARD,
    ev.BACKWARD_ENDS: OTHER,
    ev.OPTIMIZER_BEGINS: OPTIMIZER,
    ev.OPTIMIZER_ENDS: PENDING,
}


def current_phase(codes: Sequence[int], resting: int) -> int:
    """The phase open after these events, as seen from another thread; `resting` if they do not say.

    PENDING is the time after an optimizer step: what it is shows only in what follows.
    """
    closed = 0
    arrived = trained = evaluating = False
    for what in reversed(codes):
        code = what & 31
        if code == ev.LEAVE:
            closed += 1
        elif code in _ENTERED_PHASES:
            if not closed:
                return _ENTERED_PHASES[code]
            closed -= 1
        elif code == ev.ARRIVED:
            arrived = True
        elif code == ev.TRAIN_CALLED:
            trained = True
        elif code == ev.EVAL_CALLED:
            evaluating |= not trained
        elif code in _BASE_PHASES:
            phase = _BASE_PHASES[code]
            if phase == PENDING and evaluating:
                return EVAL
            return FORWARD if arrived and phase == DATA else phase
    return FORWARD if arrived else resting


# A loader's worker: which lines of the dataset, the transforms and the collate function its time goes to.
#
# One worker of a loader is enough, as all run the same code. Only looks while it fetches count. What is seen is written
# at once, because a worker may be killed at any moment.
#
# A thread that wakes up gets the interpreter when the other thread releases it, after five milliseconds at the latest.
# A sample is often quicker than that and would be seen only where it releases the interpreter: reading a file, copying
# an array. So the sampler wakes up a second time for each look, shortly after, with a very short switch interval.

# How long Python lets another thread wait, and how long it lets us wait while a look is under way.
_PATIENT_S, _IMPATIENT_S = 0.005, 0.00005


class WorkerSampler(Sampler):
    """Made in the worker, by the thread that fetches. `is_fetching` says whether it does, `root` what it then runs."""

    def __init__(
        self,
        is_fetching: Callable[[], bool],
        root: CodeType,
        make_output: Callable[[], Output],
        hz: float,
    ) -> None:
        super().__init__(make_output, hz)
        self._is_fetching = is_fetching
        self._root = root
        self._thread_id = get_ident()

    def _look(self, seconds: float) -> None:
        if not self._is_fetching():
            return
        self._wake_again()
        if not self._is_fetching():
            return
        frame = find_frame_within(sys._current_frames().get(self._thread_id), self._root)
        if frame is not None:
            self._put(self._add(self._line_of(frame, wire.DATA), seconds), wire.DATA)

    def _wake_again(self) -> None:
        before = sys.getswitchinterval()
        sys.setswitchinterval(_IMPATIENT_S)
        ours = sys.getswitchinterval()
        try:
            time.sleep(self._random.random() * _PATIENT_S)
        finally:
            if sys.getswitchinterval() == ours:
                sys.setswitchinterval(before)


def find_frame_within(frame: FrameType | None, root: CodeType) -> FrameType | None:
    """The innermost frame of the user's own code in a call of `root`; failing that of a library, failing that of torch.

    None where `root` is not being called. A forked worker's stack goes on with that of the process it was forked from,
    so the search must end there.
    """
    at, depth = frame, 0
    while at is not None and at.f_code is not root and depth < MOST_FRAMES:
        at, depth = at.f_back, depth + 1
    return user_frame(frame, depth) if at is not None and depth else None
