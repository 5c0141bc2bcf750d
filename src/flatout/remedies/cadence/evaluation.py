"""The model is evaluated every k-th time only, and the last time.

What evaluates is found in the run: a function of the script's own that puts the model into eval mode, goes through data
and returns before the next step. From its second call on it is called once in k times; in between the caller gets what
the last call returned. Where several sets are gone through at one place, each has its own turn. The last time is always
kept where the loop tells its end: `for epoch in range(…)`, `while step < steps`. Calls from another place, after the
training say, are made as ever.

Of the training class: random numbers that an evaluation draws are not drawn, and what is known of the training is known
at fewer moments. It is left alone, with the reason, where the evaluation is no function of its own, where that function
trains, saves or steps a schedule as well, and where something hangs on its result (early stopping, the best model, a
schedule) or may hang on an attribute that it sets, unless `force` is set.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from itertools import pairwise
from types import CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any

from ..answers import Answer, by_finding, yes
from ..places import OURS
from ..values import Count, Flag, Options
from .calling_source import does_more, goes_through_data, leaves_behind, loop_now, use_of_result

if TYPE_CHECKING:
    from ...records.report import RunReport
    from ..site import Site

ID = "cadence.eval"
TITLE = "The model is evaluated every k-th time only, and the last time"
SAFETY = "training"
_USUAL = 5
VALUE = Options({"every": Count(2, 100_000), "force": Flag()}, {"every": _USUAL, "force": False})
# Steps of which the stack is looked at: what is on it trains.
_LOOKS_AT_STEPS = 3


def applies(report: RunReport) -> Answer:
    answer = by_finding(report, ID, "evaluation takes no time worth mentioning", "interval_times", _USUAL)
    return yes({"every": answer.value, "force": False}, answer.why) if answer.is_yes else answer


def apply(site: Site, value: Any) -> None:
    seldom = _Seldom(site, int(value["every"]), bool(value["force"]))
    site.replace(site.torch.nn.Module, "eval", seldom.make_eval)
    site.each_step(seldom.after_step)


@dataclass(slots=True)
class _Turn:
    """Of one of the calls that are made between two steps, the first or the second or a later one."""

    count: int = 0
    result: Any = None
    # Where the loop was at the last call.
    loop_at: int | None = None


class _Seldom:
    def __init__(self, site: Site, every: int, force: bool) -> None:
        self._site = site
        self._every = every
        self._force = force
        self._trains: set[CodeType] = set()
        self._evaluates: CodeType | None = None
        self._is_inside = False
        self._turns: dict[int, _Turn] = {}
        self._taken_at = self._at_step = -1
        self._calls_at_step = 0
        # Who calls it in the loop. A call from elsewhere, after the training say, is another matter.
        self._caller: tuple[CodeType, int | None] | None = None

    def make_eval(self, original: Any) -> Any:
        compiling = self._site.torch.compiler.is_dynamo_compiling

        def eval(module: Any) -> Any:
            if not compiling() and self._site.in_force and self._site.step >= _LOOKS_AT_STEPS and not self._is_inside:
                frame = sys._getframe(1)
                self._site.guarded(lambda: self._seen(frame), lambda: None)
            return original(module)

        return eval

    def after_step(self, step: int) -> None:
        if step <= _LOOKS_AT_STEPS:
            self._trains |= {frame.f_code for frame in _users(sys._getframe(1))}

    def _seen(self, frame: FrameType) -> None:
        """The model goes into eval mode; who does it?"""
        if self._evaluates is not None:
            self._site.give_up(f"{self._evaluates.co_name} is called in a way that cannot be stood in for")
            return
        callers = _users(frame)
        for one, caller in pairwise(callers):
            if one.f_code in self._trains:
                break
            if goes_through_data(one.f_code):
                self._take(one, caller)
                return
        self._site.give_up("the evaluation is no function of its own: it stands in the loop that trains")

    def _take(self, frame: FrameType, caller: FrameType) -> None:
        code, site = frame.f_code, self._site
        more = does_more(code)
        if more is not None:
            site.give_up(f"{code.co_name} does not only evaluate, it {more}")
            return
        used = None if self._force else use_of_result(caller, code.co_name)
        if used is not None:
            site.give_up(f"the caller of {code.co_name} {used} (force = true to do it all the same)")
            return
        left = None if self._force else leaves_behind(code)
        if left is not None:
            site.give_up(
                f"{code.co_name} sets {left}, on which something may hang (force = true to do it all the same)"
            )
            return
        owners = list(_owners(frame, caller))
        if not owners:
            site.give_up(f"{code.co_name} cannot be found by its name")
            return
        self._evaluates = code
        self._caller = (caller.f_code, caller.f_lineno)
        self._taken_at = self._at_step = site.step
        # The first one was seen, not caught: what it returned is not known.
        self._turns = {0: _Turn(loop_at=(loop_now(caller) or (None,))[0])}
        for owner, name in owners:
            site.replace(owner, name, self._make)
        ends = loop_now(caller) is not None
        site.tell(function=code.co_name, every=self._every, keeps_last=ends, from_step=site.step)

    def _make(self, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1)
            is_scheduled = (caller.f_code, caller.f_lineno) == self._caller
            turn = self._next_turn() if is_scheduled else _Turn()
            if is_scheduled and self._site.in_force and self._is_skipped(turn, caller):
                return turn.result
            self._is_inside = True
            try:
                result = original(*args, **kwargs)
            finally:
                self._is_inside = False
            turn.result = result
            return result

        return call

    def _next_turn(self) -> _Turn:
        if self._at_step == self._site.step:
            self._calls_at_step += 1
        else:
            self._at_step, self._calls_at_step = self._site.step, 0
        return self._turns.setdefault(self._calls_at_step, _Turn())

    def _is_skipped(self, turn: _Turn, caller: FrameType) -> bool:
        loop = self._site.guarded(lambda: loop_now(caller), lambda: None)
        is_last = False
        if loop is not None:
            now, last = loop
            between = abs(now - turn.loop_at) if turn.loop_at is not None else 0
            is_last = between > 0 and abs(last - now) < between
            turn.loop_at = now
        if self._site.step == self._taken_at:
            return False  # those after the one that was seen
        turn.count += 1
        return turn.count > 1 and (turn.count - 1) % self._every != 0 and not is_last


def _users(frame: FrameType | None) -> list[FrameType]:
    """The frames of the user's own code, the innermost first."""
    found = []
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(("<", *OURS)) and "site-packages" not in name and "dist-packages" not in name:
            found.append(frame)
        frame = frame.f_back
    return found


def _owners(frame: FrameType, caller: FrameType) -> list[tuple[Any, str]]:
    """Where the function is found by its name: a class, its module, and a module that has imported it."""
    code = frame.f_code
    found: list[tuple[Any, str]] = []
    if code.co_argcount:
        first = frame.f_locals.get(code.co_varnames[0])
        found += [(owner, code.co_name) for owner in type(first).__mro__ if _is_of(vars(owner).get(code.co_name), code)]
    for one in (frame, caller):
        module = sys.modules.get(str(one.f_globals.get("__name__")))
        if module is not None:
            names = [name for name, value in vars(module).items() if _is_of(value, code)]
            found += [(module, name) for name in names if (module, name) not in found]
    return found


def _is_of(value: Any, code: CodeType) -> bool:
    return isinstance(value, FunctionType) and getattr(inspect.unwrap(value), "__code__", None) is code
