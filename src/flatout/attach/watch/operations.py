"""The operations of one step, as torch's own profiler sees them: what the device was asked for, not how long it took.

Shapes, strides and types of what each operation was given, which memory it lay in, what memory it made, and the pass it
belongs to. From these, reading makes multiplications, bytes and what fusing would save. Only the host is looked at:
nothing waits for the device.

Of nested operations the outermost counts that has a kernel of its own for the device, as torch's dispatcher knows:
`aten::linear` has none, the `aten::addmm` in it has. Views and allocations are work for nobody.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .. import STARTED_NS
from ..collection import no_collection
from ..context import Context, Watcher
from ..tracer import OPTIMIZER_ENDS, REQUEST_NO_GRAD, clock
from .kernels import Profiler, are_graphs_compiled, teardown
from .optimizer import Turns

# Of the run's time so far.
_BUDGET = 0.003
# What a window is taken to cost for each autograd node of a step: to record its operations, and to read them.
_NODE_S = 0.0004
_FIRST_STEP = 8
_MOST_MISSES = 4  # windows that came to nothing
# More are not written down.
_MOST_OPERATIONS = 20_000
# What they compute depends on numbers beside the tensors. They choose a backend's operation, and are kept whole.
_CONVOLUTIONS = frozenset(("aten::convolution", "aten::convolution_backward"))
# Their results are new tensors by their schemas, but nothing is computed.
_FREE = frozenset(
    (
        *("aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty", "aten::new_empty_strided"),
        *("aten::resize_", "aten::set_", "aten::as_strided_", "aten::_unsafe_view"),
        *("aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::result_type", "aten::is_same_size"),
    )
)
_BACKWARD, _OPTIMIZER = "autograd::engine::evaluate_function", "Optimizer.step#"
_KEYS = {"cpu": "CPU", "cuda": "CUDA"}


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor that an operation was given. A list of tensors stands as one of as many elements, where its first is."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    memory: int | None


@dataclass(frozen=True, slots=True)
class Operation:
    """`made`: memory that it allocated and left, with its bytes; none where it writes to what it was given."""

    name: str
    phase: str
    given: tuple[Given, ...]
    made: tuple[tuple[int, int], ...] = ()
    numbers: tuple[object, ...] = ()
    tf32: bool = False


class OperationWindow:
    """One window. Private names of torch may be missing: then opening it fails, and nothing is changed.

    `with_memory`: what each operation makes as well, so that results can be followed. torch then writes a warning into
    the script's errors, where memory that was there before is freed: for trials alone.
    """

    def __init__(self, torch: Any, device_type: str, with_memory: bool = False) -> None:
        self._torch = torch
        self._device_type = device_type
        self._with_memory = with_memory
        self._kinds: dict[str, tuple[bool, bool]] = {}
        self._recorder = Profiler(torch)
        self.cost_s = 0.0

    def open(self) -> None:
        """From here on what this thread and its backward passes do is recorded."""
        begun = clock()
        torch = self._torch
        profiler = torch._C._profiler
        # Shapes, perhaps memory; neither stacks nor operations counted nor modules.
        config = profiler.ProfilerConfig(
            profiler.ProfilerState.KINETO, True, self._with_memory, False, False, False, profiler._ExperimentalConfig()
        )
        self._recorder.open(config, {torch.profiler.ProfilerActivity.CPU})
        self.cost_s += clock() - begun

    def close(self) -> list[Operation]:
        """What was done since, in the order in which it was begun."""
        if not self._recorder.is_open:
            return []
        begun = clock()
        with no_collection:
            operations = self._read(self._recorder.close())
        self.cost_s += clock() - begun
        return operations

    def leave_to_parent(self) -> None:
        self._recorder.leave_to_parent()

    def abandon(self) -> None:
        """The window comes to nothing."""
        if self._recorder.is_open:
            self._recorder.close()

    def _read(self, result: Any) -> list[Operation]:
        found: list[tuple[Any, str]] = []
        for event in result.experimental_event_tree():
            self._gather(event, "forward", found)
        found.sort(key=lambda each: each[0].start_time_ns)
        numbers = _numbers(result) if any(event.name in _CONVOLUTIONS for event, _ in found) else {}
        operations = []
        for event, phase in found[:_MOST_OPERATIONS]:
            fields = event.extra_fields
            given = tuple(_given(fields.inputs, self._device_type))
            if given:
                made = tuple(_made(event, self._device_type).items()) if self._with_memory else ()
                more = tuple(numbers.get(event.correlation_id, ()))
                operations.append(Operation(event.name, phase, given, made, more, bool(fields.allow_tf32_cublas)))
        return operations

    def _gather(self, event: Any, phase: str, found: list[tuple[Any, str]]) -> bool:
        """Add the operations within this one, or it alone, that work on a device; were there any?"""
        name = event.name
        if name in _FREE or not hasattr(event.extra_fields, "inputs"):
            return False
        if name.startswith(_BACKWARD):
            phase = "backward"
        elif name.startswith(_OPTIMIZER):
            phase = "optimizer"
        computes, has_kernel = self._kind(name)
        if has_kernel:
            found.append((event, phase))
            return True
        is_work = False
        for child in event.children:
            is_work |= self._gather(child, phase, found)
        if computes and not is_work:
            found.append((event, phase))
        return is_work or computes

    def _kind(self, name: str) -> tuple[bool, bool]:
        """Is it an operation that does more than show the memory of what it is given, and has it a kernel of its own?

        Its schemas tell. What has none (a pass, a node, the script's own marks) is no operation.
        """
        known = self._kinds.get(name)
        if known is None:
            schemas = self._torch._C._jit_get_schemas_for_operator(name) if "::" in name else []
            computes = bool(schemas) and not _is_view(schemas)
            has_kernel = computes and (name in _CONVOLUTIONS or any(map(self._has_kernel, schemas)))
            known = self._kinds[name] = computes, has_kernel
        return known

    def _has_kernel(self, schema: Any) -> bool:
        name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        try:
            return bool(self._torch._C._dispatch_has_kernel_for_dispatch_key(name, _KEYS[self._device_type]))
        except RuntimeError:
            return False  # of scripts that are compiled, unknown to the dispatcher


def _numbers(result: Any) -> dict[int, Any]:
    """What convolutions were given beside tensors; the tree of events does not tell."""
    events = (event for event in result.events() if event.name() in _CONVOLUTIONS)
    return {event.correlation_id(): event.concrete_inputs() for event in events}


def _is_view(schemas: Any) -> bool:
    aliases = [made.alias_info for schema in schemas for made in schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def _given(inputs: Any, device_type: str) -> Iterator[Given]:
    for each in inputs:
        if isinstance(each, list | tuple):
            tensors = [tensor for tensor in each if _is_on(tensor, device_type)]
            if tensors:
                elements = sum(math.prod(tensor.sizes) for tensor in tensors)
                yield Given((elements,), (1,), _dtype(tensors[0]), tensors[0].allocation_id)
        elif _is_on(each, device_type):
            yield Given(tuple(each.sizes), tuple(each.strides), _dtype(each), each.allocation_id)


def _is_on(tensor: Any, device_type: str) -> bool:
    return hasattr(tensor, "sizes") and tensor.device.type == device_type


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _made(event: Any, device_type: str) -> dict[int, int]:
    """Memory that was allocated within and not freed there."""
    made: dict[int, int] = {}
    for child in event.children:
        fields = child.extra_fields
        size = getattr(fields, "alloc_size", None)
        if size is None:
            made |= _made(child, device_type)
        elif size < 0:
            made.pop(fields.allocation_id, None)
        elif fields.device.type == device_type:
            made[fields.allocation_id] = size
    return made


def describe_operations(operations: list[Operation]) -> dict[str, object]:
    """Names, tensors and memories once each; then the operations by their numbers."""
    names: dict[str, int] = {}
    tensors: dict[tuple[object, ...], int] = {}
    rows: list[list[object]] = []
    for operation in operations:
        given: list[list[int]] = []
        for each in operation.given:
            tensor = tensors.setdefault((each.sizes, each.strides, each.dtype), len(tensors))
            given.append([tensor, -1 if each.memory is None else each.memory])
        name = names.setdefault(operation.name, len(names))
        made = [list(memory) for memory in operation.made]
        rows.append([name, operation.phase, given, made, list(operation.numbers), int(operation.tf32)])
    return {"names": list(names), "tensors": [list(tensor) for tensor in tensors], "rows": rows}


class OperationWatch(Watcher):
    """One window in a process that trains on a GPU. Whatever fails here ends it, never the rest of the watching."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        settings = context.settings
        self._budget = float(settings.get("operations_budget", _BUDGET))
        self._with_memory = bool(settings.get("operations_memory"))
        self._device_type = str(settings.get("operations_of", "cuda"))
        self._window: OperationWindow | None = None
        self._reset()

    def _reset(self) -> None:
        self._turns = Turns()
        self._last: tuple[int, int] | None = None  # step, and the number of its last node
        self._nodes = self._own_s = 0.0
        self._opened_at = -1
        self._misses = 0
        self._off = False

    def at_fork(self) -> None:
        if self._window is not None:
            self._window.leave_to_parent()
        self._window = None
        self._reset()

    def take_own_s(self) -> float:
        own_s, self._own_s = self._own_s, 0.0
        return own_s

    def at_step_end(self, codes: Sequence[int], index: int, now: float) -> bool:
        """Close the window over this step, perhaps open one over the next."""
        teardown.end(now)
        if self._off:
            return False
        try:
            self._turns.follow(codes, self._context.phases.leader)
            if self._window is not None:
                self._advance(self._window, codes, index)
            elif self._is_due(codes, index, now):
                self._open(index)
        except Exception:
            self._stop()
        return self._window is not None

    def _is_due(self, codes: Sequence[int], index: int, now: float) -> bool:
        number = self._torch._C._autograd._get_sequence_nr()
        if self._last is not None and index > self._last[0]:
            self._nodes = (number - self._last[1]) / (index - self._last[0])
        self._last = index, number
        if index < _FIRST_STEP or self._nodes <= 0 or self._context.is_ending or not self._is_on_device():
            return False
        if self._context.is_settling():
            return False
        if _NODE_S * self._nodes > self._budget * (now - STARTED_NS * 1e-9) or self._has_ended():
            return False
        is_at_an_end = bool(codes) and codes[-1] & 31 == OPTIMIZER_ENDS and self._turns.is_at_an_end
        return is_at_an_end and not self._is_disturbed()

    def _is_on_device(self) -> bool:
        device = self._device
        return self._device_type == "cpu" or (device is not None and device.ready)

    def _has_ended(self) -> bool:
        """Is there nothing to see in this process, now and later? What a CUDA graph does is no operation."""
        distributed = self._torch.distributed
        is_other = distributed.is_available() and distributed.is_initialized() and distributed.get_rank() != 0
        self._off = is_other or self._context.has_captured or are_graphs_compiled()
        return self._off

    def _is_disturbed(self) -> bool:
        """Is somebody else looking closely just now?"""
        device = self._device
        is_capturing = device is not None and device.ready and device.is_capturing()
        return is_capturing or self._tracer.window is not None or bool(self._torch.autograd._profiler_enabled())

    def _open(self, index: int) -> None:
        self._window = OperationWindow(self._torch, self._device_type, self._with_memory)
        self._opened_at = index
        self._window.open()

    def _advance(self, window: OperationWindow, codes: Sequence[int], index: int) -> None:
        if REQUEST_NO_GRAD in {code & 31 for code in codes}:
            window.abandon()  # operations of an evaluation are among them
            self._window = None
            self._misses += 1
            self._off = self._misses >= _MOST_MISSES
            return
        if index <= self._opened_at or not self._turns.is_at_an_end:
            return
        operations = window.close()
        self._own_s += window.cost_s
        told = {
            "index": self._opened_at + 1,
            "steps": index - self._opened_at,
            "with_memory": self._with_memory,
            "convolves_in_tf32": self._convolves_in_tf32(),
            "cost_ms": round(1e3 * window.cost_s, 3),
        }
        self._output().text("operations", {**told, **describe_operations(operations)})
        self._window, self._off = None, True

    def _convolves_in_tf32(self) -> bool:
        """torch tells of matrix products alone whether float32 is rounded for them."""
        try:
            return bool(self._torch.backends.cudnn.allow_tf32)
        except RuntimeError:  # the script mixes the old settings with the new ones
            return False

    def _stop(self) -> None:
        self._off = True
        if self._window is not None:
            window, self._window = self._window, None
            window.abandon()

    def at_uninstall(self) -> None:
        self._stop()
        teardown.end()

    def at_stop(self) -> None:
        self._stop()
        teardown.end()
