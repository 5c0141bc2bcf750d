"""The line sampler: which line of the user's code a thread is in, and in which phase.

A daemon thread wakes up at irregular times and looks at one stack. It measures what that costs and slows down to stay
within its budget. It writes a recording of its own, because a recording has one writer.

A thread that runs Python releases the interpreter when it calls something that does, or when it is forced to after the
switch interval (5 ms). A look that is due in between would come late and fall on the call, not on the Python before it.
So the switch interval is short while the sampler runs: nobody but the sampler is waiting for the interpreter.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import CodeType, FrameType

from .. import tracer as ev
from .. import wire
from ..collection import no_collection
from ..context import Watcher
from ..phases import PENDING, Phases
from ..recorder import Output
from ..sites import MOST_FRAMES, is_users, user_frame
from ..tracer import Tracer
from ..wire import BACKWARD, CHECKPOINT, DATA, EVAL, FORWARD, GC, H2D, LOGGING, OPTIMIZER, OTHER, SYNC
from .natures import ModuleFrames, ThreadState, count_waits, is_on_gradients, native_id_of

THREAD_NAME = "flatout-lines"
_PACK = wire.packer("line").pack
_KIND = wire.KINDS["line"][0]
_BEAT = wire.packer("beat").pack
_BEAT_KIND = wire.KINDS["beat"][0]
# Of one core, the sampler's own CPU time; waking the training thread costs about as much again. A fixed time comes on
# top, spread over the beginning, so that a run of ten seconds has more than a hundred looks, too.
_BUDGET, _FIRST_S, _BEGINNING_S = 0.0015, 0.02, 10.0
_SHORTEST_S, _LONGEST_S = 0.01, 1.0
_WRITE_EVERY_S = 1.0
# Totals are of slices of time, so that warm-up can be told apart later. Each is a tenth of the run so far: a run of an
# hour has fewer than a hundred.
_SLICE_S, _SLICE_PART = 1.0, 0.1
# The switch interval while the sampler runs. Threads of the script that compete for the interpreter hand it over as
# often, and each time costs some 20 microseconds: beside them it is longer.
# A look takes less: it is not interrupted in its turn.
_ALONE_S, _BESIDE_S = 0.0005, 0.001


# Python 3.11 makes the frames that it shows as they are asked for, and making one may begin a collection. If that runs
# any Python (a callback, a finalizer), the other thread may go on meanwhile, and the new frame is of a call that has
# ended: reading it can crash the process. Other versions have no such gap. A look takes some 50 microseconds, mostly
# without losing the interpreter.
UNCOLLECTED: AbstractContextManager[None] = no_collection if sys.version_info[:2] == (3, 11) else nullcontext()


class _Line:
    __slots__ = ("dirty", "number", "place", "samples", "seconds")

    def __init__(self, number: int) -> None:
        self.number = number
        self.forget()

    def forget(self) -> None:
        """Begin again, in another record."""
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
        # By file, line, phase, nature, and whose work it is.
        self._lines: dict[tuple[str, int, int, int, int], _Line] = {}
        self._began = self._slice_began = 0.0
        self._switch_s = self._usual_switch_s = 0.0
        self._has_waited = False
        self._seen = b""
        self._state: ThreadState | None = None
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
                self._restore_switches()
                self._write()
                self._end_slice()
                if self._output is not None:
                    self._output.close()
                if self._state is not None:
                    self._state.close()

    def forget(self) -> None:
        """In a forked child there is no thread of this sampler, and its recording is the parent's."""
        no_collection.forget()
        self._restore_switches()
        # Not under the lock: the thread may have held it at the fork.
        if self._output is not None:
            self._output.close()
        if self._state is not None:
            self._state.close()

    def _run(self) -> None:
        try:
            self._shorten_switches()
            last = self._began = self._slice_began = time.perf_counter()
            next_write = last + _WRITE_EVERY_S
            while True:
                pause_s = self._interval_s * (0.5 + self._random.random())
                waits = count_waits() + 1
                # A bare sleep: waiting on an event would run a screenful of Python at each wake-up.
                time.sleep(pause_s)
                # First of all: the thread goes on as soon as it gets the interpreter back.
                self._seen = self._state.look() if self._state is not None else b""
                has_waited = count_waits() > waits
                with self._at_work:
                    if self._stopped:
                        return
                    now = time.perf_counter()
                    self._has_waited = has_waited
                    self._samples += 1
                    self._look(now - last)
                    last = now
                    if now >= next_write:
                        self._write()
                        self._begin_slice(now)
                        self._shorten_switches()
                        self._keep_to_budget()
                        next_write = now + _WRITE_EVERY_S
                        cpu_s = time.thread_time()
                        self._own_s += cpu_s - self._cpu_s
                        self._cpu_s = cpu_s
        except Exception:
            self._restore_switches()
            self._stopped = True  # a sampler that fails must not take the training with it

    def _shorten_switches(self) -> None:
        """Have the interpreter handed over soon, unless the script has an interval of its own."""
        if self._switch_s and sys.getswitchinterval() != self._switch_s:
            return
        if not self._switch_s:
            self._usual_switch_s = sys.getswitchinterval()
        alone = threading.active_count() <= 2
        sys.setswitchinterval(min(self._usual_switch_s, _ALONE_S if alone else _BESIDE_S))
        self._switch_s = sys.getswitchinterval()

    def _restore_switches(self) -> None:
        if self._switch_s and sys.getswitchinterval() == self._switch_s:
            sys.setswitchinterval(self._usual_switch_s)

    @abstractmethod
    def _look(self, seconds: float) -> None:
        """Look once; `seconds` have passed since the last look."""

    def _begin_slice(self, now: float) -> bool:
        if now - self._slice_began < max(_SLICE_S, _SLICE_PART * (now - self._began)):
            return False
        self._end_slice()
        self._slice_began = now
        for line in self._lines.values():
            line.forget()
        return True

    def _end_slice(self) -> None:  # noqa: B027 - most samplers keep nothing else of a slice
        """The slice that began at `_slice_began` is over."""

    def _watch_thread(self, ident: int) -> None:
        """From now on the nature of what this thread does is looked at too, where the system tells."""
        try:
            self._state = ThreadState(native_id_of(ident))
        except (OSError, AttributeError):
            self._state = None

    def _nature(self, innermost: FrameType) -> int:
        state = self._state
        return wire.UNKNOWN_NATURE if state is None else state.nature(self._seen, innermost, self._has_waited)

    def _line_of(self, at: At, phase: int, nature: int = 0, whose: int = wire.NEITHER) -> _Line:
        file, number, function = at
        key = file, number, phase, nature, whose
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(self._number(file, number, function))
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
        for (_, _, phase, nature, whose), line in self._lines.items():
            if line.dirty:
                self._put(line, phase, nature, whose)

    def _put(self, line: _Line, phase: int, nature: int, whose: int = wire.NEITHER) -> None:
        since_ns = int(self._slice_began * 1e9)
        body = _PACK(_KIND, 0, 0, line.number, phase, line.samples, line.seconds, nature, whose, since_ns)
        line.place = self._get_output().put(line.place, body)
        line.dirty = False

    def _keep_to_budget(self) -> None:
        """Sample less often where a sample is expensive, more often again where it is cheap."""
        cost_s = time.thread_time() / max(1, self._samples)
        budget = _BUDGET + _FIRST_S / max(_BEGINNING_S, time.perf_counter() - self._began)
        self._interval_s = min(_LONGEST_S, max(self._shortest_s, cost_s / budget))


At = tuple[str, int, str]  # file, line and function
Path = tuple[At, ...]  # the script's lines on a stack, the outermost first


def place_of(frame: FrameType) -> At:
    return frame.f_code.co_filename, frame.f_lineno or frame.f_code.co_firstlineno, frame.f_code.co_name


def frames_of_others() -> dict[int, FrameType]:
    """The innermost frame of every other thread.

    Not of this one: it holds the very dict that it would be in, so both, and all that the other frames work on, would
    live until garbage is collected.
    """
    frames = sys._current_frames()
    del frames[threading.get_ident()]
    return frames


# Of a longer path the innermost lines are kept.
_LONGEST_PATH = 24
# Different paths of a slice that are told apart, the dearest of them.
_MOST_PATHS = 200


def path_to(frame: FrameType | None) -> Path:
    """The script's own lines on this stack."""
    found: list[At] = []
    for _ in range(MOST_FRAMES):
        if frame is None or len(found) == _LONGEST_PATH:
            break
        if is_users(frame.f_code.co_filename):
            found.append(place_of(frame))
        frame = frame.f_back
    return tuple(reversed(found))


class CallPaths:
    """Which calls led to where the thread was seen: seconds and looks by path and phase, of one slice of time."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Path, int], list[float]] = {}

    def add(self, path: Path, phase: int, seconds: float) -> None:
        totals = self._seen.setdefault((path, phase), [0.0, 0])
        totals[0] += seconds
        totals[1] += 1

    def forget(self) -> None:
        self._seen.clear()

    def write(self, output: Callable[[], Output], number: Callable[[str, int, str], int], since_ns: int) -> None:
        if not self._seen:
            return
        dearest = sorted(self._seen.items(), key=lambda item: -item[1][0])[:_MOST_PATHS]
        rows = [
            [[number(*at) for at in path], phase, round(seconds, 4), looks]
            for (path, phase), (seconds, looks) in dearest
        ]
        self._seen = {}
        output().text("paths", {"since_ns": since_ns, "paths": rows})


class LineSampler(Sampler):
    def __init__(self, tracer: Tracer, phases: Phases, make_output: Callable[[], Output], hz: float) -> None:
        super().__init__(make_output, hz)
        self._tracer = tracer
        self._phases = phases
        self._phase_of: dict[tuple[str, int], int] = {}
        self._beat = -1
        self._is_first_step = True
        self._watched = 0
        self._others = OtherThreads()
        self._paths = CallPaths()
        # Not imported here: this module may be read before the script has imported torch.
        module = getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", None)
        call: CodeType | None = getattr(getattr(module, "_call_impl", None), "__code__", None)
        self._modules = None if call is None else ModuleFrames(call)

    def _look(self, seconds: float) -> None:
        if self._is_first_step and self._tracer.ended:
            self._is_first_step = False
            self._forget()
        owner = self._tracer.owner
        if owner != self._watched:
            self._watched = owner
            self._watch_thread(owner)
        with UNCOLLECTED:
            seen = self._read_stack(owner)
        if seen is None:
            return
        at, phase, nature, whose, path = seen
        self._add(self._line_of(at, phase, nature, whose), seconds)
        self._paths.add(path, phase, seconds)
        # Of several ranks that end together, the one whose heart stopped first was the first to fail.
        self._beat = self._get_output().put(self._beat, _BEAT(_BEAT_KIND, 0, 0, time.perf_counter_ns(), phase))

    def _read_stack(self, owner: int) -> tuple[At, int, int, int, Path] | None:
        """Where the training thread is, in which phase, doing what, whose work it is, and the calls that lead there.

        Frames keep what they work on. None of them is held when this is over: if this thread loses the interpreter
        then, no tensor lives longer for that.
        """
        frames = frames_of_others()
        self._others.look(frames, owner)
        innermost = frames.get(owner)
        frame = user_frame(innermost)
        if innermost is None or frame is None:
            return None
        at = place_of(frame)
        phase = self._phase(at[:2])
        if phase is None:
            return None
        return at, phase, self._nature(innermost), self._whose(innermost), path_to(frame)

    def _end_slice(self) -> None:
        self._others.write(self._get_output)
        self._paths.write(self._get_output, self._number, int(self._slice_began * 1e9))

    def _whose(self, innermost: FrameType) -> int:
        if self._modules is not None and self._modules.is_within(innermost):
            return wire.IN_MODULE
        return wire.ON_GRADIENTS if is_on_gradients(innermost) else wire.NEITHER

    def _forget(self) -> None:
        """Forget what lines took in the first step: it loads kernels and modules, which no other step does.

        An evaluation before it is not recognised yet, and its lines would pass for those of the forward.
        """
        self._slice_began = time.perf_counter()
        self._paths.forget()
        for line in self._lines.values():
            line.forget()

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


# Which lines the script's other Python threads are in. Only one thread at a time runs Python.
#
# How long each of them runs is counted by the kernel and read from outside; this says which they are.


# A script with more threads than this does not run Python in most of them.
_MOST_THREADS = 16
_OURS = "flatout"


class OtherThreads:
    """Looks at every thread but the one that trains and flatout's own."""

    def __init__(self) -> None:
        self._places: dict[int, Counter[At]] = {}
        self._is_new = False

    def look(self, frames: Mapping[int, FrameType], trains: int) -> None:
        if len(frames) < 2:  # the training thread alone
            return
        for ident in list(frames)[:_MOST_THREADS]:
            frame = user_frame(frames[ident]) if ident != trains else None
            if frame is not None:
                self._places.setdefault(ident, Counter())[place_of(frame)] += 1
                self._is_new = True

    def write(self, output: Callable[[], Output]) -> None:
        """Running totals: for each thread that is still there, where it was seen most."""
        if not self._is_new:
            return
        self._is_new = False
        known = {thread.ident: thread for thread in threading.enumerate() if not thread.name.startswith(_OURS)}
        seen = []
        for ident, places in self._places.items():
            thread = known.get(ident)
            if thread is not None:
                (file, line, function), _ = places.most_common(1)[0]
                seen.append(
                    {"tid": thread.native_id, "name": thread.name, "file": file, "line": line, "function": function}
                )
        if seen:
            output().text("python_threads", seen)
