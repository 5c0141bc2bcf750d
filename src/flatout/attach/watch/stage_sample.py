"""One sampled step: the calls of its stages, their marks, and the milliseconds between them.

On a GPU a mark is a pooled CUDA event, queried and never waited for; on a CPU it is a reading of the clock.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from threading import get_ident
from typing import Any

from ..tracer import Tracer, clock
from .stage_plan import Stage

_NAN = float("nan")


class Call:
    """One call of one stage. Marks are None where they have not been set."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.forward_begin: Any = None
        self.forward_end: Any = None
        self.backward_begin: Any = None
        self.backward_end: Any = None
        # Numbers of the nodes that made the inputs: an output that one of these made has passed through untouched.
        self.made_from: set[int] = set()
        self.nodes = 0  # that made the outputs; -1: the outputs are of a kind that cannot be looked into

    def forward_ms(self) -> float:
        return _between(self.forward_begin, self.forward_end)

    def backward_ms(self, end: Any) -> float:
        """Until `end`; 0 where no gradient came through, NaN where that could not be seen."""
        if self.nodes < 0:
            return _NAN
        return 0.0 if self.backward_begin is None else _between(self.backward_begin, end)


class Sample:
    """Everything about one step. It holds no tensor and no autograd node."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.calls: list[Call] = []
        self.stack: list[Call | None] = []  # calls under way; None: within another stage's
        # Where a stage's backward begins, and where a whole pass has ended (None), in the order it happened.
        self.backwards: list[tuple[Call | None, Any]] = []
        self.events: list[tuple[Any, Any]] = []
        self.in_backward = 0
        self.dropped = self.evaluated = self.without_grad = False

    @property
    def is_whole(self) -> bool:
        return bool(self.calls) and not (self.dropped or self.evaluated or self.stack)

    def ends_of_backward(self) -> dict[int, Any]:
        """By the id of a call. Where nothing made the inputs (a batch): where the next begins, or the pass ends."""
        ends: dict[int, Any] = {}
        following: Any = None
        for call, mark in reversed(self.backwards):
            if call is not None:
                ends[id(call)] = call.backward_end if call.backward_end is not None else following
            following = mark
        return ends


class Marks:
    """Makes marks, and says when the device has passed them."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self.forget()

    def forget(self) -> None:
        """A forked child cannot use its parent's events."""
        self._free: dict[Any, list[Any]] = {}
        self.own_s = 0.0

    def mark(self, sample: Sample, device: Any) -> Any:
        if device.type == "cpu":
            return clock()
        begun = clock()
        if sample.dropped or self._cuda.is_current_stream_capturing():
            # An event recorded now would become part of the user's graph.
            sample.dropped = True
            return None
        free = self._free.setdefault(device, [])
        event = free.pop() if free else self._cuda.Event(enable_timing=True)
        sample.events.append((device, event))
        event.record(self._cuda.current_stream(device))
        self.own_s += clock() - begun
        return event

    def are_passed(self, sample: Sample) -> bool:
        if not sample.events:
            return True
        if self._cuda.is_current_stream_capturing():
            return False  # nothing may be asked of CUDA now
        return all(event.query() for _, event in reversed(sample.events))

    def recycle(self, sample: Sample) -> None:
        for device, event in sample.events:
            self._free[device].append(event)
        sample.events = []


def _between(begin: Any, end: Any) -> float:
    if begin is None or end is None:
        return _NAN
    if isinstance(begin, float):
        return (end - begin) * 1e3 if isinstance(end, float) else _NAN
    try:
        return float(begin.elapsed_time(end))
    except (RuntimeError, TypeError):
        return _NAN  # events of two devices, or of one and a moment of the clock, cannot be compared


# The hooks of a sampled step.
#
# Each stage gets a forward hook before and after, removed when the step ends. The backward pass is seen from two
# autograd nodes of each call: the one that made the stage's output (its backward begins) and the one that made its
# input (its backward is over, because autograd runs nodes in reverse order of creation). These hooks insert no node,
# return nothing and hold no tensor, so the training stays bit for bit the same. A module's own backward hooks would
# insert nodes.

_MOST_CALLS = 1000  # of all stages in a step
_MOST_PARTS = 16  # of one argument or result
_DEEPEST = 3


class _Hook:
    """A hook of ours in a module. A copy or a pickle of the module gets one that does nothing and needs no flatout."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> None:
        self._call(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial, (sys.audit, "flatout.stage")


class StageHooks:
    """At most one sample is open at a time; without one, no module has a hook of ours."""

    def __init__(self, torch: Any, tracer: Tracer, marks: Marks, failed: Callable[[Exception], None]) -> None:
        self._tensor = torch.Tensor
        self._without_overrides = torch._C.DisableTorchFunction
        self._functorch = torch._C._functorch.peek_interpreter_stack
        self._compiling = torch.compiler.is_dynamo_compiling
        self._grad = torch.is_grad_enabled
        self._tracer = tracer
        self._marks = marks
        self._failed = failed
        self._handles: list[Any] = []
        self.sample: Sample | None = None
        self.own_s = 0.0

    def open(self, sample: Sample, stages: Iterable[Stage]) -> None:
        self.sample = sample
        for stage in stages:
            for module in stage.modules():
                before, after = functools.partial(self._before, stage), functools.partial(self._after, stage)
                self._handles.append(module.register_forward_pre_hook(_Hook(before), with_kwargs=True))
                self._handles.append(module.register_forward_hook(_Hook(after)))

    def close(self) -> Sample | None:
        self.remove()
        sample, self.sample = self.sample, None
        return sample

    def drop(self) -> None:
        """Give the sample up at once; it is closed when its step ends."""
        if self.sample is not None:
            self.sample.dropped = True
            self.remove()

    def remove(self) -> None:
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    # On modules.

    def _before(self, stage: Stage, module: Any, args: Any, kwargs: Any) -> None:
        # A constant for the compiler: a hook that it meets leaves no trace in the graph.
        if self._compiling():
            return
        sample = self.sample
        if sample is None or sample.dropped:
            return
        if sample.in_backward:
            stage.recomputed = True
            return
        if self._tracer.owner != get_ident():
            return
        try:
            begun = clock()
            if sample.stack or len(sample.calls) >= _MOST_CALLS:
                sample.dropped |= not sample.stack
                sample.stack.append(None)
                return
            call = Call(stage)
            sample.stack.append(call)
            sample.calls.append(call)
            if self._grad():
                for number, node in self._makers((args, kwargs)).items():
                    call.made_from.add(number)
                    node.register_prehook(functools.partial(self._left_backward, sample, call))
            self.own_s += clock() - begun
            call.forward_begin = self._marks.mark(sample, stage.device)
        except Exception as error:
            self._failed(error)

    def _after(self, stage: Stage, module: Any, args: Any, output: Any) -> None:
        if self._compiling():
            return
        sample = self.sample
        if sample is None or sample.dropped or sample.in_backward or self._tracer.owner != get_ident():
            return
        try:
            call = sample.stack.pop() if sample.stack else None
            if call is None:
                return
            if call.stage is not stage:
                sample.dropped = True  # some forward raised, and the script caught it
                return
            call.forward_end = self._marks.mark(sample, stage.device)
            begun = clock()
            if self._grad():
                self._expect_backward(sample, call, output)
            else:
                sample.without_grad = True
            self.own_s += clock() - begun
        except Exception as error:
            self._failed(error)

    def _expect_backward(self, sample: Sample, call: Call, output: Any) -> None:
        for number, node in self._makers(output).items():
            if number not in call.made_from:
                call.nodes += 1
                node.register_prehook(functools.partial(self._entered_backward, sample, call))
        if next(_tensors(self._tensor, output), None) is None:
            call.nodes = -1

    def _makers(self, value: Any) -> dict[int, Any]:
        """The autograd nodes that made the tensors in `value`, by their number."""
        # Under vmap or grad of torch.func tensors are wrapped, and their graph is another.
        if self._functorch() is not None:
            return {}
        with self._without_overrides():
            nodes = [tensor.grad_fn for tensor in _tensors(self._tensor, value)]
        return {node._sequence_nr(): node for node in nodes if node is not None}

    # In front of autograd nodes; on a GPU these run in autograd's own thread.

    def _entered_backward(self, sample: Sample, call: Call, gradients: Any) -> None:
        if sample is not self.sample or not sample.in_backward or call.backward_begin is not None:
            return
        try:
            call.backward_begin = self._marks.mark(sample, call.stage.device)
            sample.backwards.append((call, call.backward_begin))
        except Exception as error:
            self._failed(error)

    def _left_backward(self, sample: Sample, call: Call, gradients: Any) -> None:
        if sample is not self.sample or call.backward_begin is None or call.backward_end is not None:
            return
        try:
            call.backward_end = self._marks.mark(sample, call.stage.device)
        except Exception as error:
            self._failed(error)

    def backward_begins(self) -> None:
        if self.sample is not None:
            self.sample.in_backward += 1

    def backward_ends(self) -> None:
        sample = self.sample
        if sample is None or not sample.in_backward:
            return
        sample.in_backward -= 1
        last = next((call for call, _ in reversed(sample.backwards) if call is not None), None)
        if not sample.in_backward and last is not None:
            sample.backwards.append((None, self._marks.mark(sample, last.stage.device)))


def _tensors(kind: Any, value: Any, depth: int = 0) -> Iterator[Any]:
    """The tensors right in a value, or in its sequences and mappings."""
    if isinstance(value, kind):
        yield value
        return
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    if depth < _DEEPEST:
        for n, part in enumerate(parts):
            if n == _MOST_PARTS:
                return
            yield from _tensors(kind, part, depth + 1)
