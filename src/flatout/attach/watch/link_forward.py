"""The forward pass of one sampled step: what each line of the user's code takes, and which autograd nodes it makes.

Python tells a trace function of every line of the user's code that runs, so a line's time is what passes until the next
one begins. Autograd numbers its nodes in the order they are made, so a line made the nodes whose numbers were given out
while it ran.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from threading import get_native_id
from types import CodeType, FrameType
from typing import Any

from .. import tracer as ev
from ..sites import MOST_FRAMES, rank_of, user_frame
from ..sites import USER as USERS_CODE
from ..tracer import Tracer, clock
from . import loader
from .kernels import Moment
from .link_calls import NOWHERE, Key, ModuleCalls
from .link_functions import FunctionCalls
from .link_holders import Holders

_PASSED, _USERS, _MODULE_CALL, _ASKS_FOR_BATCH = range(4)
_ASKING = ("__next__", "__iter__")
TOO_DEAR = "too_dear"
# Another process that gets the processor keeps it for longer than this.
LONG_S = 0.001

# Time of these is no part of the forward pass, whatever line it is in.
_CARVED = {
    ev.ENTER_H2D,
    ev.ENTER_SYNC,
    ev.ENTER_SYNC_NO_GRAD,
    ev.ENTER_CHECKPOINT,
    ev.ENTER_LOGGING,
    ev.ENTER_GC,
    ev.ENTER_GRAD,
}
# What came before one of these was no forward pass, as no backward followed it.
_NO_FORWARD = {
    ev.REQUEST,
    ev.ARRIVED,
    ev.EXHAUSTED,
    ev.ITERATOR_MADE,
    ev.OPTIMIZER_BEGINS,
    ev.OPTIMIZER_ENDS,
    ev.ENTER_CLOSURE,
    ev.TRAIN_CALLED,
}
_FORWARD_FOLLOWS = {ev.ARRIVED, ev.ENTER_CLOSURE, ev.ENTER_H2D}
_OF_NO_USE = {ev.REQUEST_NO_GRAD: "evaluated"}

# What a look costs outside of its own code, in times of noting an event in a warm loop (`time_of_event`). Between the
# script's own work everything of ours runs with cold caches. Measured by processor time on a Neoverse N1, where noting
# an event takes 0.14 µs: 3.9 µs for a line, and 13 µs for a node (taking the interpreter, wrapping the gradients).
LINE_EVENTS, NODE_EVENTS = 28.0, 94.0
_EXTRA = 0.4  # of what a sample may cost, for the calls of modules and the lists
_PASSED_EVENTS = 7.0  # a call of other code, of which the trace function is told


class ForwardLines:
    """The trace function, between the batch and the backward pass, and the numbers of the nodes each line made."""

    def __init__(  # noqa: PLR0913
        self,
        torch: Any,
        tracer: Tracer,
        lost: LostTime,
        give_up: Callable[[str | Exception], None],
        limit_s: float,
        event_s: float,
        calls: ModuleCalls,
    ) -> None:
        self._lost = lost
        self._sequence: Callable[[], int] = torch._C._autograd._get_sequence_nr
        self._module_call = _module_call_of(torch)
        self._codes, self._moments = tracer.codes, tracer.moments
        self._give_up = give_up
        self.limit_s = limit_s
        self._line_s, self._passed_s = LINE_EVENTS * event_s, _PASSED_EVENTS * event_s
        self._own_s = 0.0
        self._looks = self._passed = 0
        # By the id of a code, what is done with its calls; codes are kept, so that no other gets their id.
        self._kinds: dict[int, int] = {}
        self._kept: dict[int, CodeType] = {}
        self._is_running = False
        self.key = NOWHERE  # the line that runs now
        self._is_new = 0  # has the line just begun (1), or is it gone on with?
        self._since = 0.0
        self._below: list[Key] = []  # the lines that called this one
        self._depth = 0  # of module calls
        # Seconds and calls by line since the last backward: forward, if another one follows.
        self._pending: dict[Key, list[float]] = {}
        # From the number at a place on, nodes were made by the line at the same place.
        self._starts: list[int] = []
        self._makers: list[Key] = []
        self._number = -1  # of the next node
        self._spent_s = 0.0  # in all lines so far
        # What calls and lists cost; they are left out before the lines have to be.
        self.extra_s, self._has_room = 0.0, True
        self.has_calls = True
        self.calls = calls
        self.functions = FunctionCalls(torch, calls)
        self.holders = Holders(torch)
        self._read = 0  # events so far
        self._last_moment = 0.0
        self._entered: list[tuple[int, float]] = []  # calls under way: what they are, and since when
        # What `torch.autograd.grad` takes is backward, of the line that calls it.
        self._grad_s: dict[Key, float] = {}
        self._all_grads_s = 0.0
        self._is_after_step = True
        # Where the launches of kernels are recorded: which line ran from when on.
        self.track: list[Moment] | None = None
        # Bound once: a frame's trace function is ours if it is this very object.
        self._on_call, self._on_line, self._on_module = self._see_call, self._see_line, self._see_module

    @property
    def cost_s(self) -> float:
        return self._own_s + self._looks * self._line_s + self._passed * self._passed_s

    def leave_out_calls(self) -> None:
        self.has_calls = self._has_room = False

    def code_of(self, key: Key) -> CodeType | None:
        return self._kept.get(key[0])

    def maker_of(self, number: int) -> Key:
        place = bisect_right(self._starts, number) - 1
        return self._makers[place] if place >= 0 and number < self._number else NOWHERE

    def maker_from(self, number: int) -> tuple[Key, int]:
        """As `maker_of`, and the number from which on it made the nodes up to this one."""
        if number >= self._number:
            return NOWHERE, self._number
        place = bisect_right(self._starts, number) - 1
        return (self._makers[place], self._starts[place]) if place >= 0 else (NOWHERE, 0)

    def turn_of(self, number: int) -> int:
        """Which turn of a line made it: each time a line begins is one."""
        return bisect_right(self._starts, number)

    # On and off.

    def resume(self) -> None:
        """Look at every line from now on."""
        begun = clock()
        if sys.gettrace() is not None:
            if not self._is_running:
                self._give_up("traced")  # a debugger has come
            return
        number = self._sequence()
        if number != self._number:
            self._note_nodes(number, NOWHERE)
        self._below.clear()
        self._depth = 0
        self.calls.forget_open()
        self.functions.forget_open()
        self.holders.look_again()
        for frame in _frames(sys._getframe(1)):
            kind = self._kind_of(frame.f_code)
            if kind == _USERS:
                frame.f_trace = self._on_line
            elif kind == _MODULE_CALL:
                self._depth += 1
                frame.f_trace_lines = False
                frame.f_trace = self._on_module
        self.key, self._is_new = self._line_at(sys._getframe(1)), 0
        self._is_running = True
        self._lost.take()
        self._own_s += clock() - begun
        self._since = clock()
        if self.track is not None:
            self.track.append((self._since, "forward", self.key))
        sys.settrace(self._on_call)

    def pause(self) -> dict[Key, list[float]]:
        """Stop looking, and return what has been seen since the last pause."""
        self._stop()
        self._change_to(self.key, 0)
        pending, self._pending = self._pending, {}
        self._is_after_step = True
        return pending

    def take_grads(self) -> dict[Key, float]:
        """What `torch.autograd.grad` took by line since the last pause."""
        taken, self._grad_s = self._grad_s, {}
        return taken

    def _stop(self) -> None:
        if self._is_running:
            self._is_running = False
            # Whoever has put theirs in place since keeps it.
            if sys.gettrace() is self._on_call:
                sys.settrace(None)
            else:
                self._give_up("traced")

    def end(self) -> None:
        """Leave nothing behind."""
        if self._is_running and sys.gettrace() is self._on_call:
            sys.settrace(None)
        self._is_running = False
        for frame in _frames(sys._getframe(1)):
            if frame.f_trace is self._on_line or frame.f_trace is self._on_module:
                frame.f_trace = None
                frame.f_trace_lines = True

    def forget_pending(self) -> None:
        """A step of some optimizer has ended, and its events are read."""
        self._pending.clear()
        self._grad_s.clear()
        self._entered.clear()
        self._read = 0
        self._is_after_step = True
        self._since = clock()

    # The trace functions. An exception of ours must not leave them: Python would raise it in the script.

    def _see_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        try:
            code = frame.f_code
            kind = self._kinds.get(id(code), -1)
            if kind < 0:
                kind = self._kind_of(code)
            if kind == _PASSED or not self._is_running:
                self._passed += 1
                return None
            if kind == _ASKS_FOR_BATCH:
                # What a dataset does in this process is no forward pass.
                self._change_to(self.key, 0)
                self._stop()
                return None
            self._below.append(self.key)
            if kind == _MODULE_CALL:
                self._depth += 1
                self._change_to((self.key[0], self.key[1], True), 1)
                self._enter_module(frame)
                frame.f_trace_lines = False
                return self._on_module
            self._change_to((id(code), frame.f_lineno or 0, self._depth > 0), 0)
            if self.has_calls:
                self.functions.enter(frame, self._below[-1], self._spent_s, self._all_grads_s)
                self._take_own()
            return self._on_line
        except Exception as error:
            self._give_up(error)
            return None

    def _see_line(self, frame: FrameType, event: str, arg: Any) -> Any:
        try:
            if not self._is_running:
                frame.f_trace = None
                return None
            if event == "line":
                self._change_to((id(frame.f_code), frame.f_lineno or 0, self._depth > 0), 1)
                if not self._depth and self._has_room and self.holders.look(frame):
                    self._take_own()
            elif event == "return":
                self._change_to(self._below.pop() if self._below else self._line_at(frame.f_back), 0)
                if self.has_calls:
                    self.functions.leave(arg, self._spent_s, self._all_grads_s)
                    self._take_own()
            return self._on_line
        except Exception as error:
            self._give_up(error)
            return None

    def _see_module(self, frame: FrameType, event: str, arg: Any) -> Any:
        try:
            if not self._is_running:
                frame.f_trace = None
                return None
            if event == "return":
                self._depth = max(0, self._depth - 1)
                self._change_to(self._below.pop() if self._below else self._line_at(frame.f_back), 0)
                self._leave_module(arg)
            return self._on_module
        except Exception as error:
            self._give_up(error)
            return None

    def _enter_module(self, frame: FrameType) -> None:
        if self._has_room:
            call = self.calls.enter(frame.f_locals, self.key)
            if call is not None:
                call.forward_s = -self._spent_s
                call.moments.append(self._since)
            self._take_own()

    def _leave_module(self, result: Any) -> None:
        if self._has_room:
            call = self.calls.leave(result)
            if call is not None:
                call.forward_s += self._spent_s
                call.moments.append(self._since)
            self._take_own()

    def _take_own(self) -> None:
        """What has passed since the line began is ours."""
        now = clock()
        own_s, self._since = now - self._since, now
        own_s = own_s if own_s < LONG_S else max(0.0, own_s - self._lost.take())
        self._own_s += own_s
        self.extra_s += own_s
        self._has_room = self.has_calls and self.extra_s < _EXTRA * self.limit_s

    def _change_to(self, key: Key, is_new: int) -> None:
        """The line so far ends here, and `key` begins."""
        now = clock()
        moments = self._moments
        # The time of the last event too: copies in a row are one event, which grows.
        if self._entered or len(moments) != self._read or (moments and moments[-1] != self._last_moment):
            spent_s = -self._read_events(now)
            spent_s += now - self._since - self._line_s
        else:
            spent_s = now - self._since - self._line_s
        if spent_s > LONG_S:
            spent_s -= self._lost.take()
        seen = self._pending.get(self.key)
        if seen is None:
            seen = self._pending[self.key] = [0.0, 0]
        if spent_s > 0.0:
            seen[0] += spent_s
            self._spent_s += spent_s
        seen[1] += self._is_new
        number = self._sequence()
        if number != self._number:
            self._note_nodes(number, self.key)
        self.key, self._is_new = key, is_new
        self._looks += 1
        if self.track is not None:
            self.track.append((now, "forward", key))
        self._since = since = clock()
        self._own_s += since - now
        if since - now > LONG_S:
            # Lost in here: neither a cost of ours, nor of the line that begins.
            self._own_s -= min(since - now, self._lost.take())
            self._since = clock()
        if self._own_s + self._looks * self._line_s > self.limit_s:
            self._give_up(TOO_DEAR)

    def _note_nodes(self, number: int, maker: Key) -> None:
        self._starts.append(max(0, self._number))
        self._makers.append(maker)
        self._number = number

    def _read_events(self, now: float) -> float:
        """Read what the patches have noted meanwhile: which of the time since the line began is no forward pass."""
        carved_s = 0.0
        carved_since = self._since if self._is_carving() else None
        if len(self._codes) < self._read:
            self._read = 0  # all up to here were taken away
        elif len(self._codes) == self._read and self._moments and carved_since is None:
            carved_s = max(0.0, self._moments[-1] - self._last_moment)  # a copy that was added to the one before
        for code, moment in zip(self._codes[self._read :], self._moments[self._read :], strict=False):
            self._read += 1
            what = code & 31
            if what in _NO_FORWARD or (
                what == ev.ENTER_H2D and self._is_after_step and not self._has_called_a_module()
            ):
                # Without a loader, the forward pass begins with the copy of the batch; behind a module's call, what is
                # copied is the next batch.
                self._begin_again(moment, what == ev.ENTER_CLOSURE)
                carved_s, carved_since = 0.0, None if carved_since is None else moment
                self._is_after_step = what not in _FORWARD_FOLLOWS
            if what in _CARVED or what == ev.ENTER_CLOSURE:
                self._entered.append((what, moment))
                if what in _CARVED and carved_since is None:
                    carved_since = max(moment, self._since)
            elif what == ev.LEAVE and self._entered:
                entered, since = self._entered.pop()
                if entered == ev.ENTER_GRAD:
                    self._grad_s[self.key] = self._grad_s.get(self.key, 0.0) + moment - since
                    self._all_grads_s += moment - since
                if entered in _CARVED and not self._is_carving():
                    carved_s += max(0.0, moment - (moment if carved_since is None else carved_since))
                    carved_since = None
            elif what in _OF_NO_USE:
                self._give_up(_OF_NO_USE[what])
        self._last_moment = self._moments[-1] if self._moments else 0.0
        # A call that is still under way: up to now all of it is its own.
        return carved_s if carved_since is None else carved_s + max(0.0, now - carved_since)

    def _is_carving(self) -> bool:
        return any(what in _CARVED for what, _ in self._entered)

    def _has_called_a_module(self) -> bool:
        return self.key[2] or any(is_within for _, _, is_within in self._pending)

    def _begin_again(self, moment: float, is_closure: bool) -> None:
        if is_closure:
            self.functions.forget_known()
            self.calls.forget_known()  # an optimizer that evaluates where it has been before has its reasons
        self._pending.clear()
        self._grad_s.clear()
        self._is_new = 0
        self._since = max(self._since, moment)

    def _line_at(self, frame: FrameType | None) -> Key:
        found = user_frame(frame)
        if found is None:
            return NOWHERE
        self._kind_of(found.f_code)
        return id(found.f_code), found.f_lineno or 0, self._depth > 0

    def _kind_of(self, code: CodeType) -> int:
        kind = self._kinds.get(id(code), -1)
        if kind < 0:
            self._kept[id(code)] = code
            if code is self._module_call:
                kind = _MODULE_CALL
            elif rank_of(code.co_filename) == USERS_CODE:
                kind = _USERS
            else:
                asks = code.co_name in _ASKING and code.co_filename == loader.__file__
                kind = _ASKS_FOR_BATCH if asks else _PASSED
            self._kinds[id(code)] = kind
        return kind


class LostTime:
    """For how long a thread could have run, but something else had the processor, as Linux counts it."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        self._seen_ns: dict[int, int] = {}

    def take(self) -> float:
        """Seconds that the calling thread lost since it last asked; 0 where the system does not tell."""
        me = get_native_id()
        file = self._files.get(me)
        try:
            if file is None:
                file = self._files[me] = os.open(f"/proc/self/task/{me}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            now_ns = int(os.pread(file, 64, 0).split()[1])
        except (OSError, IndexError, ValueError):
            return 0.0
        lost_ns = now_ns - self._seen_ns.get(me, now_ns)
        self._seen_ns[me] = now_ns
        return lost_ns * 1e-9

    def close(self) -> None:
        files, self._files = self._files, {}
        for file in files.values():
            os.close(file)


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(MOST_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _module_call_of(torch: Any) -> CodeType | None:
    """What runs whenever a module is called."""
    call = getattr(torch.nn.Module, "_wrapped_call_impl", None) or torch.nn.Module._call_impl
    return getattr(call, "__code__", None)
