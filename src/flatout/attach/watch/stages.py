"""What each stage of the model takes, forward and backward, in a sampled step now and then (`flatout run --stages`).

This decides which steps are sampled, and writes down what was seen. Between samples there is no hook on any module.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Any

from .. import wire
from ..context import Context, Watcher
from ..patching import guard
from ..recorder import fact
from ..tracer import EVAL_CALLED, OPTIMIZER_ENDS, REQUEST_NO_GRAD, clock
from .interruptions import is_compiler_used
from .stage_plan import Plan, trained_models
from .stage_sample import Marks, Sample, StageHooks

_PACK = wire.packer("stage").pack
_KIND = wire.KINDS["stage"][0]
_FIRST_STEP = 3  # by then the model has been through its passes, and whatever is compiled has been
_CLOSELY_AT_FIRST = 8  # samples
_STEPS_AT_FIRST, _STEPS_LATER = 4, 32  # between two samples, on average
_SPARSER_AFTER = 256  # steps between two samples grow with the run from here on, so that a long one has few thousand
_BUDGET = 0.002  # of the training's time
# What a sample adds to its step against what its own clock sees: torch calls a hooked module by a slower way, and ours
# runs with cold caches. Measured on a CPU: 3.4 ms against 1.3.
_COLD = 2.5
_SAMPLES_TO_REFINE, _MOST_REFINEMENTS = 3, 2
_MOST_PENDING = 4
_FEWEST = 2  # samples, for a figure
_MOST_MISSES = 8  # samples in a row that came to nothing


class StageWatch(Watcher):
    """The stages of one process. Whatever fails here ends the stages, never the rest of the watching."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._marks = Marks(context.torch.cuda)
        self._hooks = StageHooks(context.torch, context.tracer, self._marks, self._fail)
        self._random = random.Random(20262)  # our own: the script's random state is not ours to move
        context.backward_observer = self
        self.at_fork()

    def at_fork(self) -> None:
        self._hooks.close()
        self._marks.forget()
        self._plan: Plan | None = None
        self._pending: deque[Sample] = deque()
        self._next = _FIRST_STEP
        self._samples = self._refinements = self._since_refined = self._misses = 0
        self._own_s = self._once_s = self._cost_s = self._step_s = 0.0
        self._last: tuple[int, float] | None = None
        self._off = False
        self._why: dict[str, object] | None = None

    def install(self) -> None:
        # Capturing a module as a graph refuses one with hooks.
        for module in (self._torch.cuda, self._torch.cuda.graphs):
            self._patches.replace(module, "make_graphed_callables", self._make_graphed)

    def _make_graphed(self, original: Any) -> Any:
        def make_graphed_callables(*args: Any, **kwargs: Any) -> Any:
            guard(self._hooks.drop, self._fail)
            return original(*args, **kwargs)

        return make_graphed_callables

    def take_own_s(self) -> float:
        """What sampling has cost since this was last asked."""
        sampling_s = _COLD * (self._own_s + self._hooks.own_s + self._marks.own_s - self._once_s)
        own_s = sampling_s + self._once_s
        self._own_s = self._hooks.own_s = self._marks.own_s = self._once_s = 0.0
        self._cost_s += sampling_s
        return own_s

    def backward_begins(self) -> None:
        if self._device is not None:
            self._device.backward_begins()
        self._hooks.backward_begins()

    def backward_ends(self) -> None:
        self._hooks.backward_ends()
        if self._device is not None:
            self._device.backward_ends()

    def at_step_end(self, codes: Sequence[int], index: int, now: float) -> bool:
        """Close the sample of this step, perhaps open another for the next; `codes` are the events of the step."""
        begun = clock()
        try:
            self._tell_why()
            if not self._off:
                self._advance(codes, index, begun)
        except Exception as error:
            self._fail(error)
        self._own_s += clock() - begun
        # A sample ends with its step; and the first ones come closely, so that a short run has some.
        is_open = self._hooks.sample is not None
        return is_open or (not self._off and self._samples + len(self._pending) < _CLOSELY_AT_FIRST)

    def _advance(self, codes: Sequence[int], index: int, now: float) -> None:
        sample = self._hooks.sample
        if sample is not None:
            happened = {code & 31 for code in codes}
            # A frozen part is called without gradients too; only together with eval() is that an evaluation.
            if REQUEST_NO_GRAD in happened or (EVAL_CALLED in happened and sample.without_grad):
                sample.evaluated = True
            if index < sample.index:
                return  # another optimizer of the same step, or the events were read in the middle of one
            self._finish(index)
        self._harvest()
        if self._last is not None and index > self._last[0]:
            self._step_s = (now - self._last[1]) / (index - self._last[0])
        self._last = index, now
        at_an_end = bool(codes) and codes[-1] & 31 == OPTIMIZER_ENDS
        is_due = index >= self._next and at_an_end and not self._context.is_ending
        if is_due and len(self._pending) < _MOST_PENDING:
            self._open(index)

    def _open(self, index: int) -> None:
        if is_compiler_used():
            self._stop(fact("stages.compiler_used"))
            return
        if self._plan is None:
            begun = clock()
            self._plan = Plan(self._torch)
            self._plan.make(trained_models(self._torch))
            self._tell(self._plan)
            self._once_s = clock() - begun  # no part of what a sample costs
        if not self._plan.stages:
            self._stop(fact("stages.none_to_time"))
            return
        self._hooks.open(Sample(index + 1), self._plan.stages)

    def _finish(self, index: int) -> None:
        sample = self._hooks.close()
        assert sample is not None
        self._misses = 0 if sample.is_whole else self._misses + 1
        if sample.is_whole:
            self._pending.append(sample)
        else:
            self._marks.recycle(sample)
        if self._misses >= _MOST_MISSES:
            self._stop(fact("stages.always_evaluated" if sample.evaluated else "stages.calls_not_followed"))
        self._next = index + 1 + int(self._random.random() * 2 * self._steps_between(index))

    def _steps_between(self, index: int) -> float:
        taken = self._samples + len(self._pending)
        if taken < _CLOSELY_AT_FIRST:
            return _STEPS_AT_FIRST
        affordable = self._cost_s / taken / (_BUDGET * self._step_s + 1e-9)
        return max(_STEPS_LATER, index / _SPARSER_AFTER, affordable)

    def _harvest(self) -> None:
        while self._pending and self._marks.are_passed(self._pending[0]):
            sample = self._pending.popleft()
            self._write(sample)
            self._marks.recycle(sample)

    def _write(self, sample: Sample) -> None:
        plan = self._plan
        assert plan is not None
        ends = sample.ends_of_backward()
        for stage in list(plan.stages):
            calls = [call for call in sample.calls if call.stage is stage]
            if stage.recomputed and any(call.nodes == 0 for call in calls):
                # Its first pass was without gradients, so nothing tells where its backward is.
                plan.leave_out(stage, fact("stages.reentrant"))
                self._tell(plan)
                continue
            forward_ms = sum(call.forward_ms() for call in calls)
            backward_ms = sum(call.backward_ms(ends.get(id(call))) for call in calls)
            stage.add(forward_ms, backward_ms)
            self._output().append(_PACK(_KIND, 0, 0, sample.index, stage.number, len(calls), forward_ms, backward_ms))
        self._samples += 1
        self._since_refined += 1
        if self._since_refined == _SAMPLES_TO_REFINE and self._refinements < _MOST_REFINEMENTS:
            self._refine(plan)

    def _refine(self, plan: Plan) -> None:
        """By now it is known where the time goes."""
        self._since_refined = 0
        self._refinements += 1
        if plan.refine():
            # Samples that are under way are of the stages before.
            while self._pending:
                self._marks.recycle(self._pending.popleft())
            self._samples = 0
            self._tell(plan)

    def _tell(self, plan: Plan) -> None:
        self._output().text(
            "stages", {"stages": [stage.describe() for stage in plan.stages], "left_out": plan.left_out}
        )

    def _tell_why(self) -> None:
        if self._why is not None:
            self._output().text("stages_stopped", self._why)
            self._why = None

    def at_uninstall(self) -> None:
        self._stop(None)

    def _stop(self, why: dict[str, object] | None) -> None:
        """No more samples, and no hook left."""
        if not self._off:
            self._off = True
            self._why = why
            self._hooks.close()

    def _fail(self, error: Exception) -> None:
        try:
            self._stop(fact("stages.failed", error=f"{type(error).__name__}: {error}"))
        except Exception:
            self._off = True

    def at_finish(self) -> None:
        """Take what is ready at the end of the process, without waiting for the rest."""
        try:
            self._hooks.close()
            self._harvest()
            if not self._off and self._samples < _FEWEST:
                self._why = fact("stages.run_too_short")
            self._tell_why()
        except Exception:
            pass
