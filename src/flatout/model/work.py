"""What a step asks of the device: multiplications and bytes of each operation, and the bytes that fusing would leave.

By torch's names of its operations and the sizes of what they were given. A multiplication and an addition are two
operations of arithmetic; attention is counted whole where it is causal, as torch's own counter does, and its backward
pass with the scores that it computes again.

What fusing leaves: operations between two that multiply become one kernel, which reads what was there before it once
and writes what is read after it. What only the backward pass reads is not written where it can be computed again from
less. Batch normalisation needs what it is given twice, since its mean comes first.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flatout.records.report import MULTIPLYING, KernelKind, WorkShare

_BYTES = {"float64": 8, "int64": 8, "complex64": 8, "complex128": 16, "float32": 4, "int32": 4, "float16": 2,
          "bfloat16": 2, "int16": 2}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor that an operation was given; `memory` is None for a list of tensors, which stands as one."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    memory: int | None = None

    @property
    def elements(self) -> int:
        """That lie in memory: what is expanded is read once."""
        return math.prod(size for size, stride in zip(self.sizes, self.strides, strict=True) if stride)

    @property
    def bytes(self) -> int:
        return self.elements * _BYTES.get(self.dtype, 1)


@dataclass(frozen=True, slots=True)
class Operation:
    """`made`: memory that it left behind, with its bytes; None where that was not recorded."""

    name: str
    phase: str
    given: tuple[Given, ...]
    made: tuple[tuple[int, int], ...] | None = None
    numbers: tuple[object, ...] = ()
    tf32: bool = False


def shares_of(operations: Sequence[Operation], steps: float = 1.0) -> tuple[WorkShare, ...]:
    """By kind and precision; those that multiply most first, then those that move most."""
    fused = fused_bytes(operations)
    totals: dict[tuple[KernelKind, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    for operation, left in zip(operations, fused or [0.0] * len(operations), strict=True):
        total = totals[kind_of(operation), precision_of(operation)]
        for place, value in enumerate((1.0, flops_of(operation), bytes_of(operation), left)):
            total[place] += value / steps
    shares = [
        WorkShare(kind, precision, count, flops, moved, left if fused is not None else None)
        for (kind, precision), (count, flops, moved, left) in totals.items()
    ]
    return tuple(sorted(shares, key=lambda share: (-share.flops, -share.bytes)))


def precision_of(operation: Operation) -> str:
    """Of its products; "tf32" where float32 may be rounded for tensor cores. The widest type of what it was given."""
    kinds = {given.dtype for given in operation.given}
    wide = next((name for name in ("float64", "float32", "bfloat16", "float16") if name in kinds), None)
    if wide is None:
        return operation.given[0].dtype
    if kind_of(operation) in MULTIPLYING:
        first = operation.given[0].dtype
        return "tf32" if first == "float32" and operation.tf32 else first
    return wide


# Kinds of operations, by the part of their names behind "::". The first pattern that is found decides.

_NAMES: tuple[tuple[KernelKind, str], ...] = (
    ("attention", r"attention|flash_attn|fmha"),
    ("gemm", r"^(mm|addmm|bmm|baddbmm|addbmm|mv|addmv|dot|vdot|linear|_scaled_mm|_grouped_mm|_int_mm)$"),
    ("convolution", r"convolution|^_?conv(_|$|\dd|_depthwise)|thnn_conv|slow_conv"),
    ("recurrent", r"_rnn(_|$)|^(lstm|gru|rnn_tanh|rnn_relu)$"),
    ("normalisation", r"(batch|layer|group|instance|rms)_norm"),
    ("indexing", r"^_?(index|gather|scatter|embedding|masked_(select|scatter|fill)|take|nonzero|unique|put_)"),
    (
        "copy",
        r"^(copy_?|_copy_from|clone|cat|stack|_to_copy|contiguous|fill_?|zero_|zeros|ones|full|repeat|roll|flip"
        r"|constant_pad_nd|slice_backward|select_backward)$|_copy$",
    ),
    (
        "reduction",
        r"^_?(sum|mean|prod|max|min|amax|amin|aminmax|argmax|argmin|norm|linalg_vector_norm|logsumexp|var|std|var_mean"
        r"|std_mean|all|any|cumsum|cumprod|sort|topk|kthvalue|median|mode|softmax|log_softmax|logcumsumexp|bincount"
        r"|histc)(_backward_data|_backward|_|$)|pool|loss",
    ),
)
_KINDS = tuple((kind, re.compile(pattern)) for kind, pattern in _NAMES)


def kind_of(operation: Operation) -> KernelKind:
    if operation.phase == "optimizer":
        return "optimizer"
    space, _, name = operation.name.partition("::")
    if space in ("c10d", "c10d_functional", "_c10d_functional", "record_param_comms"):
        return "communication"
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), "pointwise")


# Arithmetic. Of what multiplies alone: all else waits for memory long before it computes.


def flops_of(operation: Operation) -> float:
    kind = kind_of(operation)
    if kind not in MULTIPLYING:
        return 0.0
    try:
        return float(
            {"gemm": _product, "convolution": _convolution, "attention": _attention, "recurrent": _recurrent}[kind](
                operation
            )
        )
    except (IndexError, ZeroDivisionError):
        return 0.0  # another form of it, with other arguments


def _product(operation: Operation) -> float:
    """Of the last two matrices that it was given; a vector is a narrow one."""
    given = operation.given
    name = operation.name.partition("::")[2]
    first = 1 if name.startswith(("add", "badd")) else 0
    one, other = given[first].sizes, given[first + 1].sizes
    return 2.0 * math.prod(one) * (other[-1] if len(other) > 1 else 1)


def _convolution(operation: Operation) -> float:
    given, numbers = operation.given, operation.numbers
    if "backward" in operation.name:
        made, image, weight = given[0], given[1], given[2]
        is_transposed = bool(numbers[7]) if len(numbers) > 7 else False
        mask = numbers[10] if len(numbers) > 10 and isinstance(numbers[10], list | tuple) else (True, True)
        walked = image if is_transposed else made
        return sum(map(bool, mask[:2])) * _convolved(walked.sizes[0], walked.sizes[2:], weight.sizes)
    image, weight = given[0], given[1]
    stride, padding, dilation, is_transposed = _numbers_of(numbers, len(weight.sizes) - 2)
    if is_transposed:
        return _convolved(image.sizes[0], image.sizes[2:], weight.sizes)
    places = [
        (size + 2 * pad - gap * (width - 1) - 1) // step + 1
        for size, width, step, pad, gap in zip(
            image.sizes[2:], weight.sizes[2:], stride, padding, dilation, strict=False
        )
    ]
    return _convolved(image.sizes[0], places, weight.sizes)


def _numbers_of(numbers: Sequence[object], dimensions: int) -> tuple[list[int], list[int], list[int], bool]:
    if len(numbers) < 7:
        return [1] * dimensions, [0] * dimensions, [1] * dimensions, False
    stride, padding, dilation = (_widened(numbers[place], dimensions) for place in (3, 4, 5))
    return stride, padding, dilation, bool(numbers[6])


def _widened(number: object, dimensions: int) -> list[int]:
    values = [int(value) for value in number] if isinstance(number, list | tuple) else []
    return values * dimensions if len(values) == 1 else values


def _convolved(images: int, places: Iterable[int], weight: Sequence[int]) -> float:
    return 2.0 * images * math.prod(places) * math.prod(weight)


def _attention(operation: Operation) -> float:
    """Two products forward; backward four, and the scores once more."""
    is_backward = "backward" in operation.name or "_bwd" in operation.name
    query, key, value = operation.given[1:4] if is_backward else operation.given[:3]
    # `_scaled_dot_product_*` have heads before places; the others behind them.
    length = key.sizes[-2] if "scaled_dot_product" in operation.name else key.sizes[-3]
    forward = 2.0 * math.prod(query.sizes[:-1]) * length * (query.sizes[-1] + value.sizes[-1])
    return 2.5 * forward if is_backward else forward


def _recurrent(operation: Operation) -> float:
    """Each weight multiplies each place of each sequence."""
    forward = 2.0 * math.prod(operation.given[0].sizes[:2]) * operation.given[1].elements
    return 2.0 * forward if "backward" in operation.name else forward


# Bytes.

_WRITES_ALONE = re.compile(r"::(fill|zero|normal|uniform|bernoulli|random|exponential)_$")
_COPIES = re.compile(r"::copy_$")
_KEEPS_SIZE = re.compile(r"softmax|cumsum|cumprod|sort|logcumsumexp")
# The mean of what it is given comes first, over more than one kernel keeps.
_NEEDS_TWICE = re.compile(r"(batch|group|instance)_norm")
_LOOKS_UP = re.compile(r"::(embedding|index_select)$")


def bytes_of(operation: Operation) -> float:
    """Read and written."""
    return _read(operation) + _written(operation)


def _read(operation: Operation) -> float:
    given = operation.given
    if _WRITES_ALONE.search(operation.name):
        return 0.0
    if _COPIES.search(operation.name):
        return float(sum(each.bytes for each in given[1:]))
    if _LOOKS_UP.search(operation.name):
        return float(_looked_up(operation))
    times = 2 if _NEEDS_TWICE.search(operation.name) else 1
    return float(times * sum(each.bytes for each in given))


def _looked_up(operation: Operation) -> int:
    """The rows of a table that are asked for."""
    table, *others = operation.given
    rows = sum(each.elements for each in others)
    return rows * math.prod(table.sizes[1:]) * _BYTES.get(table.dtype, 1)


def _written(operation: Operation) -> float:
    given, name = operation.given, operation.name
    if _changes_what_it_is_given(operation):
        if "::_fused_" in name:
            return float(sum(each.bytes for each in (given[0], *given[2:])))  # all but the gradients
        return float(given[0].bytes)
    if operation.made is not None:
        return float(sum(size for _, size in operation.made))
    return _likely_written(operation)


def _changes_what_it_is_given(operation: Operation) -> bool:
    return operation.name.endswith("_")


def _likely_written(operation: Operation) -> float:
    """Where what it made was not recorded: by its kind."""
    given, kind = operation.given, kind_of(operation)
    size = _BYTES.get(given[0].dtype, 1)
    if kind == "gemm":
        first = len(given) - 2 if len(given) <= 3 else 0
        one, other = given[first].sizes, given[first + 1].sizes
        return float(size * math.prod(one[:-1]) * (other[-1] if len(other) > 1 else 1))
    if kind == "convolution":
        weight = given[min(2, len(given) - 1)] if "backward" in operation.name else given[1]
        images = given[1] if "backward" in operation.name else given[0]
        if "backward" in operation.name:
            return float(images.bytes + weight.bytes)
        return size * flops_of(operation) / max(1.0, 2.0 * math.prod(weight.sizes[1:]))
    if kind == "reduction" and not _KEEPS_SIZE.search(operation.name) and "backward" not in operation.name:
        return 0.0
    if _LOOKS_UP.search(operation.name):
        return float(_looked_up(operation))
    if operation.name == "aten::cat":
        return float(sum(each.bytes for each in given))
    return float(max(each.bytes for each in given))


# What fusing leaves.

# These end a kernel: they multiply, talk to other processes, or write wherever their numbers say.
_ENDS = (*MULTIPLYING, "communication")
_SCATTERS = re.compile(r"::_?(index_put|scatter|index_add|embedding_dense_backward|sort|topk|nonzero|masked_select)")


def fused_bytes(operations: Sequence[Operation]) -> list[float] | None:
    """For each operation what it still reads and writes, were it fused with its neighbours.

    None where it is not known what operations made. What ends a kernel stays as it is.
    """
    if any(operation.made is None for operation in operations):
        return None
    readers: dict[int, list[int]] = defaultdict(list)
    for place, operation in enumerate(operations):
        for given in _inputs_of(operation):
            if given.memory is not None:
                readers[given.memory].append(place)
    regions = _regions(operations)
    again = _computed_again(operations, regions, readers)
    left: list[float] = []
    for first, end in regions:
        if end - first == 1:
            left.append(bytes_of(operations[first]))
            continue
        members = operations[first:end]
        read_later = {memory for memory, places in readers.items() if places[-1] >= end and memory not in again}
        # What is written over and read by nobody was there before, and is for a later step.
        over = {operation.given[0].memory for operation in members if _overwrites(operation)}
        read_later |= {memory for memory in over if memory is not None and memory not in readers}
        kernel = _Kernel(read_later, again)
        left += [kernel.add(operation) for operation in members]
    return left


# The bytes of what something is computed from, by its memory.
Origins = Mapping[int, int]


def _computed_again(
    operations: Sequence[Operation], regions: Sequence[tuple[int, int]], readers: Mapping[int, Sequence[int]]
) -> dict[int, Origins]:
    """Memory that a kernel of the forward pass need not write: only fused kernels of the backward pass read it, and
    what it is computed from is less to read than it is to write and read.
    """
    again: dict[int, Origins] = {}
    for first, end in regions:
        if end - first == 1 or operations[first].phase != "forward":
            continue
        for memory, (size, origins) in _origins_within(operations[first:end]).items():
            later = [place for place in readers.get(memory, ()) if place >= end]
            is_fused = all(
                operations[place].phase == "backward" and not _is_alone(operations[place]) for place in later
            )
            if later and is_fused and sum(origins.values()) <= 2 * size:
                again[memory] = origins
    return again


def _origins_within(operations: Sequence[Operation]) -> dict[int, tuple[int, Origins]]:
    """Of all memory that these operations make: its size, and what was there before that it comes from."""
    made: dict[int, tuple[int, Origins]] = {}
    for operation in operations:
        origins: dict[int, int] = {}
        for given in _inputs_of(operation):
            if given.memory in made:
                origins |= made[given.memory][1]
            elif given.memory is not None:
                origins[given.memory] = max(given.bytes, origins.get(given.memory, 0))
        made |= {memory: (size, origins) for memory, size in _outputs_of(operation)}
    return made


def _inputs_of(operation: Operation) -> Sequence[Given]:
    """What it reads: a copy does not read what it writes over."""
    return operation.given[_overwrites(operation) :] if not _WRITES_ALONE.search(operation.name) else ()


def _outputs_of(operation: Operation) -> Sequence[tuple[int, int]]:
    """Memory that is new with it, with its bytes; what a copy writes over counts as new."""
    made, given = operation.made or (), operation.given
    if _overwrites(operation) and given[0].memory is not None:
        return (*made, (given[0].memory, given[0].bytes))
    return made


def _overwrites(operation: Operation) -> bool:
    return bool(_COPIES.search(operation.name) or _WRITES_ALONE.search(operation.name))


class _Kernel:
    """Operations that become one. `read_later`: the memory that others read after it, or that stays beyond the step;
    `again`: what others compute again.
    """

    def __init__(self, read_later: set[int], again: Mapping[int, Origins]) -> None:
        self._read_later = read_later
        self._again = again
        self._read: dict[int, int] = {}
        self._made: set[int] = set()

    def add(self, operation: Operation) -> float:
        """The bytes that this operation adds to the kernel's."""
        moved = sum(map(self._add_read, _inputs_of(operation)))
        if _NEEDS_TWICE.search(operation.name):
            moved += sum(given.bytes for given in operation.given)
        for memory, size in _outputs_of(operation):
            self._made.add(memory)
            moved += size if memory in self._read_later else 0
        if _changes_what_it_is_given(operation) and operation.given[0].memory not in self._made:
            moved += operation.given[0].bytes
        return float(moved)

    def _add_read(self, given: Given) -> int:
        if given.memory is None:
            return given.bytes
        if given.memory in self._made:
            return 0
        needed = self._again.get(given.memory, {given.memory: given.bytes})
        moved = 0
        for memory, size in needed.items():
            before = self._read.get(memory, 0)
            self._read[memory] = max(before, size)
            moved += self._read[memory] - before
        return moved


def _regions(operations: Sequence[Operation]) -> list[tuple[int, int]]:
    """From where to where operations can become one kernel; one that cannot is alone."""
    regions: list[tuple[int, int]] = []
    begun = 0
    for place, operation in enumerate(operations):
        is_alone = _is_alone(operation)
        changes = place > begun and operations[place - 1].phase != operation.phase
        if (is_alone or changes) and place > begun:
            regions.append((begun, place))
            begun = place
        if is_alone:
            regions.append((place, place + 1))
            begun = place + 1
    if begun < len(operations):
        regions.append((begun, len(operations)))
    return regions


def _is_alone(operation: Operation) -> bool:
    return kind_of(operation) in _ENDS or bool(_SCATTERS.search(operation.name))
