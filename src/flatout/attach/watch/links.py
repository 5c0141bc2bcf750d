"""A short window over a few steps: what each line of the user's code takes, and what its operations take in backward.

This decides which steps are looked at, and writes down what was seen. A window costs some milliseconds, so it is opened
only where all windows together stay within a small share of the run's time so far.
"""

from __future__ import annotations

import math
import os
import random
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .. import STARTED_NS
from ..context import Context, Watcher
from ..patching import guard
from ..sites import user_frame
from ..steps import time_of_event
from ..tracer import ENTER_GRAD, OPTIMIZER_ENDS, REQUEST_NO_GRAD, clock
from .interruptions import is_compiler_used
from .kernels import FIXED_S, LAUNCH_S, LAUNCHES_PER_NODE, KernelWindow, Profiler, describe_kernels, teardown
from .optimizer import Turns

if TYPE_CHECKING:
    from .link_calls import Call, Key
    from .link_drops import LaterSteps
    from .link_forms import Form
    from .link_pairs import Pairs
    from .link_products import Factor, Operation
    from .link_sample import Again, LineTotals, LinkSample
    from .link_subnormal import Given, Subnormal

_T = TypeVar("_T")
_BUDGET = 0.005  # of the run's time so far, for all windows together
_MOST_WINDOWS = 5
_MOST_MISSES = 8  # windows that came to nothing
# Where a window is due in the middle of a step, so many ends of optimizers are read one by one until the last comes.
_MOST_WAITED = 16
_FIRST_STEP = 8
# A window comes no sooner than after so many times the time at which the last one came: they are spread over the run,
# however long it turns out to be.
_SPREAD, _SPREAD_MORE = 1.25, 0.5
# What the first window is taken to cost at least, before one has been measured: a node that is one of many of its line
# is only counted. One that turns out to cost more than may be spent is abandoned, and the next is taken to cost twice
# as much as that.
_FIXED_S, _NODE_S = 0.004, 0.000005
# And one over lines only, without the calls of modules and what nodes do. It comes first where the whole one cannot be
# afforded so far into the run, or was not.
_LINES_S, _LINES_NODE_S, _LINES_FROM_S = 0.003, 0.0000025, 10.0
_MOST_NODES = 50_000
# What rules out a window over lines, and over kernels too.
_NO_KERNELS = ("other_rank",)
_MOST_LINES = 200  # that are written down, the dearest first
_SPARSE = 0.1  # of a factor's values are not zero: the most of which a sparse product gains (measured: from 0.08 down)
_LATER_STEPS = 8  # in which a weight that somebody trains changes
_MOST_TIMED = 2  # of such products, of those with subnormal numbers and of such pairs, when the process ends


class LinkWatch(Watcher):
    """The windows of one process. Whatever fails here ends the windows, never the rest of the watching."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._budget = float(context.settings.get("window_budget", _BUDGET))
        # For tests: a window over every other step.
        self._is_often = bool(context.settings.get("window_often"))
        self._is_of_lines = bool(context.settings.get("window_lines"))  # for tests: each over lines only
        # A private name of torch: without it there is no window, and all else is watched as before.
        self._sequence = getattr(context.torch._C._autograd, "_get_sequence_nr", None)
        self._sample: LinkSample | None = None
        # Calls of a sample that are told later: those that are surely needless, and those that may be.
        self._undecided: tuple[LinkSample, list[Call], list[Call]] | None = None
        # What some step's gradients become after it, that step, and the calls that were written down of it.
        self._later: tuple[LaterSteps, LinkSample, Sequence[Call]] | None = None
        self._written: Sequence[Call] = ()
        # On a GPU, one of the windows records the kernels too.
        self._kernels = KernelWindow(self._torch)
        context.is_recording_kernels = lambda: self._kernels.is_open
        self.at_fork()

    def at_fork(self) -> None:
        self._kernels.leave_to_parent()
        self._close()
        self._random = random.Random(20263)  # our own: the script's random state is not ours to move
        self._taken = self._misses = self._waited = 0
        self._cost_s = self._own_s = self._dearest_s = self._lines_s = 0.0
        self._not_before_s = 0.0  # of the run's time
        self._last: tuple[int, int] | None = None  # step, and the number of its last node
        self._nodes = 0.0  # a step makes
        self._turns = Turns()
        self._opened_behind = -1  # the optimizer after whose step the window was opened
        self._lists: dict[int, tuple[str, int, int]] = {}  # name, length and step, as of earlier windows
        self._weights: dict[int, Any] = {}  # that no optimizer has, as they were in earlier windows
        self._event_s = 0.0
        self._sparse: set[Factor] = set()  # nearly empty factors of products that were seen
        self._pairs: set[Pairs] = set()  # formed one by one and then summed
        # Operations that have another form, perhaps with the copy of a matrix.
        self._forms: dict[Form, Any] = {}
        self._subnormal: dict[Given, Subnormal] = {}  # of the last window that saw some
        self._heaviest: list[float] = []  # operations of the last window, in multiplications
        self._off = self._sequence is None
        self._why = "unknown_torch" if self._off else ""
        self._alone_at = -1  # the step of a window that records nothing but kernels

    def take_own_s(self) -> float:
        own_s, self._own_s = self._own_s, 0.0
        return own_s

    def at_step_end(self, codes: Sequence[int], index: int, now: float) -> bool:
        """Close the window over this step, perhaps open one over the next; `codes` are the events of the step."""
        self._look_later(index)
        teardown.end(now)
        if self._off:
            return False
        try:
            self._turns.follow(codes, self._context.phases.leader)
            if self._alone_at >= 0:
                self._advance_alone(codes, index)
            elif self._sample is not None:
                self._advance(self._sample, codes, index)
            elif self._later is not None:
                self._advance_later(*self._later)
            elif self._is_due(codes, index, now):
                self._open(index, now)
        except Exception as error:
            self._fail(error)
        reads_on = self._is_often or self._waited > 0
        return self._sample is not None or self._alone_at >= 0 or (reads_on and not self._off)

    def _is_due(self, codes: Sequence[int], index: int, now: float) -> bool:
        assert self._sequence is not None
        number = self._sequence()
        if self._last is not None and index > self._last[0]:
            self._nodes = (number - self._last[1]) / (index - self._last[0])
        if self._last is None or index > self._last[0]:
            self._last = index, number
        if self._context.is_ending or index < _FIRST_STEP or self._nodes <= 0 or self._context.is_settling():
            return False
        if Profiler.is_taken():
            return False  # by the window over operations: one over kernels would take it for the script's own
        run_s = _run_s(now)
        left_s = self._budget * run_s - self._cost_s
        expected_s, _ = self._expect(left_s, run_s)
        if self._wants_kernels():
            # They tell more than another window over lines, and come alone where lines are too dear.
            if expected_s > left_s:
                expected_s = self._kernels_s
            elif self._taken:
                expected_s += self._kernels_s
        if run_s < self._not_before_s or expected_s > left_s:
            self._waited = 0
            return False
        if codes and codes[-1] & 31 == OPTIMIZER_ENDS and self._turns.is_at_an_end:
            self._waited = 0
            return True
        # Events are read seldom, and of several optimizers mostly behind the same one.
        self._waited += 1
        if self._waited > _MOST_WAITED:
            self._wait_from(now)
            self._waited = 0
        return False

    def _expect(self, left_s: float, run_s: float) -> tuple[float, bool]:
        """What the next window is taken to cost, and whether it is one over lines only."""
        whole_s = self._dearest_s or _FIXED_S + _NODE_S * self._nodes
        may_be_less = not self._taken and (self._misses > 0 or run_s >= _LINES_FROM_S)
        if not self._is_of_lines and (whole_s <= left_s or not may_be_less):
            return whole_s, False
        return self._lines_s or _LINES_S + _LINES_NODE_S * self._nodes, True

    def _open(self, index: int, now: float) -> None:
        begun = clock()
        why = self._why_never()
        if why and (why in _NO_KERNELS or not self._wants_kernels()):
            self._stop(why)
            return
        self._why = self._why_not_now()
        if self._why:
            self._miss(now)
            return
        allowed_s = self._budget * _run_s(now) - self._cost_s
        with_kernels = self._wants_kernels() and (self._is_often or self._kernels_s <= allowed_s)
        if with_kernels:
            allowed_s -= self._kernels_s
        expected_s, lines_only = self._expect(allowed_s, _run_s(now))
        if why or expected_s > allowed_s:
            if with_kernels:
                self._alone_at, self._why = index + 1, why
                self._pause_device()
                self._open_kernels()
                self._pay(clock() - begun - self._kernels.take_waited_s())
            return
        # Not before it is needed: every import delays the script's start.
        from .link_calls import ModuleCalls
        from .link_drops import Drops
        from .link_sample import LinkSample

        self._event_s = self._event_s or time_of_event()
        calls = ModuleCalls(self._torch, lambda: _held_weights(self._context.optimizers), self._weights)
        drops = Drops(self._torch, self._context.optimizers)
        self._sample = LinkSample(self._torch, self._tracer, index + 1, allowed_s, self._event_s, calls, drops)
        if with_kernels:
            self._open_kernels()
        self._pause_device()
        self._opened_behind = self._turns.last
        self._tracer.window = self._sample
        self._pay(clock() - begun - self._kernels.take_waited_s())
        self._sample.begin(with_kernels, lines_only)

    def _pause_device(self) -> None:
        if self._device is not None:
            self._device.pause()

    def _wants_kernels(self) -> bool:
        is_on_device = self._device is not None and self._device.ready
        return is_on_device and not self._kernels.is_spent and not self._context.has_captured

    @property
    def _kernels_s(self) -> float:
        """What recording them is taken to cost; nothing in a look, whose speed is not used."""
        if self._context.settings.get("kernels_always"):
            return 0.0
        return FIXED_S + LAUNCH_S * LAUNCHES_PER_NODE * self._nodes

    def _open_kernels(self) -> None:
        why = self._kernels.why_not()
        if why:
            self._kernels.is_spent = True
            self._output().text("kernels_missing", {"why": why})
        else:
            self._kernels.open()

    def _advance_alone(self, codes: Sequence[int], index: int) -> None:
        """Nothing but kernels was recorded. Lines are not known."""
        if index < self._alone_at or not self._turns.is_at_an_end:
            return
        at, self._alone_at = self._alone_at, -1
        begun = clock()
        if self._device is not None:
            self._device.go_on()
        if REQUEST_NO_GRAD in {code & 31 for code in codes}:
            self._kernels.abandon()
        kernels = self._kernels.close()
        if kernels:
            self._write_kernels(at, index, describe_kernels(kernels, [None] * len(kernels)))
        self._pay(clock() - begun - self._kernels.take_waited_s())
        self._wait_from(clock())
        if self._why:
            self._stop(self._why)

    def _end_kernels(self, sample: LinkSample, index: int) -> None:
        begun = clock()
        if sample.why_not == "evaluated":
            self._kernels.abandon()  # those of an evaluation are among them
        kernels = self._kernels.close()
        if kernels and sample.why_not:
            self._write_kernels(sample.index, index, describe_kernels(kernels, [None] * len(kernels)))
        elif kernels:
            places = [[phase, _place(sample, key)] for phase, key in sample.take_kernels(kernels)]
            host = {"forward": sample.forward_s, "backward": sample.backward_s}
            host_ms = {phase: round(1e3 * seconds, 4) for phase, seconds in host.items()}
            self._write_kernels(sample.index, index, {"host_ms": host_ms, **describe_kernels(kernels, places)})
        self._pay(clock() - begun - self._kernels.take_waited_s())

    def _write_kernels(self, first: int, last: int, told: dict[str, object]) -> None:
        window = self._kernels
        costs = {"step_ms": round(1e3 * window.step_s, 3), "cost_ms": round(1e3 * window.cost_s, 3)}
        self._output().text("kernels", {"index": first, "steps": last - first + 1, **costs, **told})

    def _advance(self, sample: LinkSample, codes: Sequence[int], index: int) -> None:
        happened = {code & 31 for code in codes}
        if REQUEST_NO_GRAD in happened:
            sample.why_not = sample.why_not or "evaluated"
        if ENTER_GRAD in happened and self._device is not None and self._device.ready:
            # Nodes of gradients of gradients are made in a thread of autograd, which has numbers of its own.
            sample.why_not = sample.why_not or "autograd_grad"
        if index > sample.index:
            sample.why_not = sample.why_not or "irregular"  # the optimizers do not take turns as they did
        # Where one of them takes two turns and another one, it ends behind the one that it was opened behind.
        is_at_an_end = self._turns.is_at_an_end or self._turns.last == self._opened_behind
        if (index < sample.index or not is_at_an_end) and not sample.why_not:
            sample.step_goes_on()  # another optimizer of the same step, or the events were read in the middle of one
            return
        self._end_kernels(sample, index)
        self._close()
        begun = clock()
        why = sample.why_not or self._why_never() or ("" if sample.backwards else "no_backward")
        if not why:
            self._write(sample)
            self._follow(sample)
        cost_s = sample.cost_s + clock() - begun
        self._pay(cost_s)
        self._learn(sample, cost_s)
        if why:
            self._why = why
            self._miss(clock())
            if sample.has_failed:
                self._stop(why)
            return
        self._taken += 1
        self._wait_from(clock())
        if self._taken >= _MOST_WINDOWS and not self._is_often:
            self._off = True

    def _learn(self, sample: LinkSample, cost_s: float) -> None:
        """What the next window is to be taken to cost."""
        whole_s, lines_s = cost_s, sample.lines_cost_s
        if sample.was_too_dear:
            # It was stopped on the way.
            whole_s, lines_s = 2.0 * max(cost_s, sample.forward.limit_s), 2.0 * lines_s
        elif sample.without:
            whole_s = 2.0 * cost_s
        if sample.is_of_lines:
            self._lines_s = max(self._lines_s, whole_s if sample.was_too_dear else cost_s)
        else:
            self._dearest_s = max(self._dearest_s, whole_s)
            self._lines_s = max(self._lines_s, lines_s)

    def _look_later(self, index: int) -> None:
        if self._undecided is not None and index - self._undecided[0].index >= _LATER_STEPS:
            begun = clock()
            try:
                self._tell_undecided(are_later=True)
            except Exception as error:
                self._fail(error)
            self._pay(clock() - begun)

    def _follow(self, sample: LinkSample) -> None:
        """What becomes of the gradients that the step has left?"""
        drops = sample.backward.drops
        if drops.is_undecided:
            from .link_drops import LaterSteps

            self._later = LaterSteps(drops, sample.index), sample, self._written
            self._tracer.window = self._later[0]

    def _advance_later(self, later: LaterSteps, sample: LinkSample, written: Sequence[Call]) -> None:
        own_s, later.own_s = later.own_s, 0.0
        self._pay(own_s)
        if not later.is_over:
            return
        self._later = self._tracer.window = None
        told = {id(call) for call in written}
        self._write_later(sample, [call for call in sample.backward.drops.finish() if id(call) not in told])

    def _close(self) -> None:
        self._later = None
        sample, self._sample = self._sample, None
        self._tracer.window = None
        self._kernels.abandon()
        if self._device is not None:
            self._device.go_on()
        if sample is not None:
            sample.end()

    def _pay(self, seconds: float) -> None:
        self._cost_s += seconds
        self._own_s += seconds

    def _miss(self, now: float) -> None:
        self._misses += 1
        self._wait_from(now)
        if self._misses >= _MOST_MISSES and not self._is_often:
            self._stop(self._why)

    def _wait_from(self, now: float) -> None:
        if not self._is_often:
            self._not_before_s = _run_s(now) * (_SPREAD + _SPREAD_MORE * self._random.random())

    def _why_never(self) -> str:
        """What makes windows impossible in this process, now and later."""
        torch, graph = self._torch, self._context.graph
        if graph.compiled or is_compiler_used():
            return "compiled"
        if graph.anomaly or torch.is_anomaly_enabled():
            return "anomaly_mode"
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            if distributed.get_rank() != 0:
                return "other_rank"  # all would wait for each, every time at another step
            if "torch.distributed.fsdp" in sys.modules:
                return "sharded"
        return "too_many_nodes" if self._nodes > _MOST_NODES else ""

    def _why_not_now(self) -> str:
        if sys.gettrace() is not None or sys.getprofile() is not None or _is_monitored():
            return "traced"
        if self._torch.autograd._profiler_enabled():
            return "profiled"
        return "capturing" if self._device is not None and self._device.is_capturing() else ""

    def _write(self, sample: LinkSample) -> None:
        from .link_forms import describe_found
        from .link_growing import describe_series
        from .link_holders import describe_holders
        from .link_pairs import describe_pairs
        from .link_picks import describe_picks
        from .link_sample import describe_tables

        context = self._context
        lines = sorted(sample.lines.items(), key=lambda item: -(item[1].forward_s + item[1].backward_s))
        told = [_describe(sample, key, line) for key, line in lines[:_MOST_LINES]]
        calls = self._written = [*self._needless(sample), *sample.backward.drops.finish()]
        value = {
            "index": sample.index,
            "nodes": sample.backward.nodes,
            "without": sample.without,
            "cost_ms": round(1e3 * sample.cost_s, 3),
            "forward_ms": round(1e3 * sample.forward_s, 4),
            "backward_ms": round(1e3 * sample.backward_s, 4),
            "lines": [line for line in told if line is not None],
            "calls": [_describe_call(sample, call) for call in calls],
            "growing": [
                {"at": _place(sample, series.key), **describe_series(series)}
                for series in sample.forward.calls.growing.finish()
            ],
            "picks": [
                {"at": _place(sample, picks.key), **describe_picks(picks)} for picks in sample.backward.picks.seen
            ],
            "again": [_describe_again(sample, key, again) for key, again in sample.backward.passes.again.items()],
            "operations": _describe_operations(sample),
            "pairs": [
                {"at": [_place(sample, key) for key in formed.lines], "pairs": describe_pairs(formed.pairs)}
                for formed in sample.backward.pair_sums.seen
            ],
            "forms": [
                {"at": [_place(sample, key) for key in found.lines], **describe_found(found)}
                for found in sample.backward.forms.seen
            ],
            "holders": describe_holders(sample.forward.holders, self._lists, sample.index),
            "tables": [
                {"at": _place(sample, key), **told}
                for key, told in describe_tables(sample.backward.tables.told(), context.optimizers, context.tables)
            ],
        }
        self._output().text("window", value)
        for operation in sample.backward.operations.seen:
            if operation.factor is not None and operation.factor.density <= _SPARSE:
                self._sparse.add(operation.factor)
        self._keep_subnormal(sample.backward.operations.seen)
        heaviest = sorted((each.operations for each in sample.backward.operations.seen), reverse=True)
        self._heaviest = heaviest[:_MOST_TIMED] or self._heaviest
        self._pairs.update(formed.pairs for formed in sample.backward.pair_sums.seen)
        for found in sample.backward.forms.seen:
            if found.copy is not None or found.form not in self._forms:
                self._forms[found.form] = found.copy

    def _needless(self, sample: LinkSample) -> list[Call]:
        """Calls that the step could do without. Where weights may be trained by hand, it is told some steps later."""
        self._tell_undecided(are_later=False)
        calls, flow = sample.forward.calls, sample.backward.flow
        found = calls.finish()
        known = {id(call) for call in found}
        undecided = [call for call in calls.found if call.weight is not None and id(call) not in known]
        if flow.finish(calls) and not undecided:
            return found
        self._undecided = sample, [call for call in found if call.weight is not None], undecided
        return [call for call in found if call.weight is None]

    def _tell_undecided(self, are_later: bool) -> None:
        """`are_later`: enough steps have passed to see which weights stay as they are."""
        if self._undecided is None:
            return
        (sample, calls, undecided), self._undecided = self._undecided, None
        if are_later:
            calls = [*calls, *sample.forward.calls.find_unchanged(undecided)]
            sample.backward.flow.finish_later(sample.forward.calls)
        self._write_later(sample, calls)

    def _write_later(self, sample: LinkSample, calls: Sequence[Call]) -> None:
        if calls:
            value = {"index": sample.index, "calls": [_describe_call(sample, call) for call in calls]}
            self._output().text("later_calls", value)

    def _stop(self, why: str) -> None:
        """No more windows, and nothing left behind."""
        if not self._off:
            self._off = True
            self._why = why
            self._close()

    def _fail(self, error: Exception) -> None:
        try:
            self._stop(f"failed: {type(error).__name__}: {error}")
        except Exception:
            self._off = True

    def at_uninstall(self) -> None:
        self._stop("")
        teardown.end()

    def at_stop(self) -> None:
        self._close()
        teardown.end()

    def at_finish(self) -> None:
        self._tell_undecided(are_later=False)
        self._time_all()
        if not self._taken:
            self._output().text("window_missing", {"why": self._why or self._why_never() or "run_too_short"})

    def _time_all(self) -> None:
        """Both ways of what there is a cheaper way for, now that the script has ended and waits for nothing."""
        if self._sparse:
            from .link_products import describe_factor, time_sparse

            largest = sorted(self._sparse, key=lambda factor: math.prod(factor.size), reverse=True)
            self._time("sparse_product", largest, time_sparse, describe_factor)
        if self._subnormal:
            from .link_subnormal import describe_given, time_subnormal

            found = list(self._subnormal.values())
            self._time("subnormal_operation", found, time_subnormal, lambda each: {"given": describe_given(each.given)})
        if self._pairs:
            from .link_pairs import describe_pairs, time_pairs

            most = sorted(self._pairs, key=lambda pairs: pairs.elements, reverse=True)
            self._time("summed_pairs", most, time_pairs, lambda pairs: {"pairs": describe_pairs(pairs)})
        if self._forms:
            from .link_form_times import time_forms

            for told in time_forms(self._torch, self._forms):
                self._output().text("other_form", told)
        if self._heaviest and self._device is None:
            self._time_threads()

    def _time_threads(self) -> None:
        from .link_threads import idle_processors, time_threads

        try:
            told = time_threads(self._torch, self._heaviest) if idle_processors(self._torch) > 0 else None
        except Exception:
            return
        if told is not None:
            self._output().text("threads", told)

    def _time(
        self,
        name: str,
        found: Sequence[_T],
        time_both: Callable[[Any, _T], tuple[float, float] | None],
        describe: Callable[[_T], dict[str, object]],
    ) -> None:
        for each in found[:_MOST_TIMED]:
            try:
                took_ms = time_both(self._torch, each)
            except Exception:
                return  # too little memory, say
            if took_ms is not None:
                self._output().text(name, {**describe(each), "ms": [round(ms, 4) for ms in took_ms]})

    def _keep_subnormal(self, operations: Sequence[Operation]) -> None:
        seen = {found.given: found for operation in operations if (found := operation.subnormal) is not None}
        if seen:
            dearest = sorted(seen.values(), key=lambda each: each.share * each.given.operations, reverse=True)
            self._subnormal = {each.given: each for each in dearest[:_MOST_TIMED]}


def _describe_operations(sample: LinkSample) -> list[dict[str, object]]:
    """The heaviest operations by line: multiplications, those for rows that nobody reads, and nearly empty factors."""
    by_line: dict[Key, list[Operation]] = {}
    for operation in sample.backward.operations.seen:
        by_line.setdefault(operation.key, []).append(operation)
    from .link_subnormal import describe_given

    told: list[dict[str, object]] = []
    for key, operations in by_line.items():
        known = [operation for operation in operations if operation.unread is not None]
        told.append(
            {
                "at": _place(sample, key),
                "operations": sum(operation.operations for operation in operations),
                "unread": sum(operation.operations * (operation.unread or 0.0) for operation in known),
                "factors": [
                    {"size": factor.size, "density": round(factor.density, 6)}
                    for operation in operations
                    if (factor := operation.factor) is not None and factor.density <= _SPARSE
                ],
                "subnormal": [
                    {"given": describe_given(found.given), "share": round(found.share, 6)}
                    for operation in operations
                    if (found := operation.subnormal) is not None
                ],
            }
        )
    return told


def _describe(sample: LinkSample, key: Key, line: LineTotals) -> list[object] | None:
    """File, line, function, within a module, calls, milliseconds forward and backward, nodes; None: of no line."""
    code = sample.forward.code_of(key)
    if code is None:
        return None
    times = (round(1e3 * line.forward_s, 4), round(1e3 * line.backward_s, 4))
    return [os.path.abspath(code.co_filename), key[1], code.co_name, key[2], line.calls, *times, line.ops]


def _describe_call(sample: LinkSample, call: Call) -> dict[str, object]:
    first = call.first_call
    return {
        "kind": call.kind,
        "module": call.module,
        "at": _place(sample, call.key),
        "first_at": None if first is None else _place(sample, first.key),
        "forward_ms": round(1e3 * call.forward_s, 4),
        "backward_ms": round(1e3 * call.backward_s, 4),
        "device_ms": _device_ms(call),
        "nodes": call.nodes,
        "is_random": call.is_random,
        "moves_state": call.moves_state,
        "flows_through": call.flows_through,
    }


def _device_ms(call: Call) -> list[float | None]:
    """Forward and backward; None: not recorded."""
    return [None if s is None else round(1e3 * s, 4) for s in (call.forward_device_s, call.backward_device_s)]


def _describe_again(sample: LinkSample, key: Key, again: Again) -> dict[str, object]:
    at, ms = _place(sample, key), round(1e3 * again.seconds, 4)
    return {"at": at, "passes": again.passes, "nodes": again.nodes, "backward_ms": ms}


def _place(sample: LinkSample, key: Key) -> list[object] | None:
    code = sample.forward.code_of(key)
    return None if code is None else [os.path.abspath(code.co_filename), key[1], code.co_name]


def _held_weights(optimizers: Sequence[Any]) -> dict[int, Any]:
    """What any of them has to update: weak references, by id. An id alone may be another's by and by."""
    living = [optimizer for reference in optimizers if (optimizer := reference()) is not None]
    weights = (weight for optimizer in living for group in optimizer.param_groups for weight in group["params"])
    return {id(weight): weakref.ref(weight) for weight in weights}


def _run_s(now: float) -> float:
    return now - STARTED_NS * 1e-9


def _is_monitored() -> bool:
    """Does a profiler or coverage tool of newer Pythons look on?"""
    monitoring: Any = getattr(sys, "monitoring", None)
    return monitoring is not None and any(monitoring.get_tool(number) is not None for number in range(6))


# Where the script makes its embeddings: the line at which it says how their gradients are kept.


_MOST = 1000


class TableWatch(Watcher):
    def install(self) -> None:
        for kind in (self._torch.nn.Embedding, self._torch.nn.EmbeddingBag):
            self._patches.replace(kind, "__init__", self._make_init)

    def _make_init(self, original: Any) -> Any:
        def __init__(table: Any, *args: Any, **kwargs: Any) -> None:
            original(table, *args, **kwargs)
            frame = sys._getframe(1)
            guard(lambda: self._know(table, frame), self._trouble)

        return __init__

    def _know(self, table: Any, frame: Any) -> None:
        user = user_frame(frame)
        if user is not None and len(self._context.tables) < _MOST:
            place = os.path.abspath(user.f_code.co_filename), user.f_lineno or 0
            self._context.tables.append((weakref.ref(table), place))
