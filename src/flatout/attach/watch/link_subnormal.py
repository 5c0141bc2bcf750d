"""Numbers so close to zero that a processor computes them slowly, in what the heaviest operations of a step are given.

The smallest numbers of a type are stored without a leading one (subnormal). Many processors leave their quick path for
each such factor. How much that takes depends on the processor, the operation and where the numbers lie: so the same
operation is timed when the process ends, with a part of these very values, and with zeros in their place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from ..graph import saved_tensor

_ELEMENTS = 1 << 13  # that are looked at
_KEPT = 1 << 17  # elements that are kept to be timed: a copy of 512 KiB
# What an operation that is timed may take at most, in multiplications, and the elements of what it multiplies with: the
# process is about to end, and somebody waits for it.
_MOST_OPERATIONS, _MOST_OTHER = 5e7, 1 << 22
LEAST_SHARE = 1e-3
_MAGNITUDE, _FIRST_NORMAL = 0x7FFFFFFF, 0x00800000  # of a float32, as an integer
_MATRICES = {"AddmmBackward0": ("mat1", "mat2"), "MmBackward0": ("self", "mat2")}
_CONVOLUTION = "ConvolutionBackward0"
_OPTIONS = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Given:
    """What an operation is given, with subnormal numbers; the same of two steps are equal."""

    shape: tuple[int, ...]  # of this input, its rows first
    other: tuple[int, ...]  # of what it is multiplied with
    options: tuple[Any, ...] = ()  # of a convolution; none: a matrix product

    @property
    def operations(self) -> float:
        """Multiplications at most: a convolution with a stride has fewer."""
        is_transposed = bool(self.options) and bool(self.options[_OPTIONS.index("transposed")])
        summed_over = 1 if self.options and not is_transposed else 0
        return float(math.prod(self.shape)) * math.prod(self.other) / max(1, self.other[summed_over])


@dataclass(frozen=True, slots=True, eq=False)
class Subnormal:
    given: Given
    share: float  # of its values
    rows: Any  # a copy of some of its rows, or None if one is too large


def find_subnormal(torch: Any, node: Any, is_readable: Callable[[Any], bool]) -> Subnormal | None:
    """The input of this node that has most of them."""
    found: list[Subnormal] = []
    with torch._C.DisableTorchFunction(), torch.no_grad():
        for tensor, given in _inputs(node):
            if tensor.dtype is torch.float32 and is_readable(tensor):
                share = _share(torch, tensor)
                if share >= LEAST_SHARE:
                    found.append(Subnormal(given, share, _some_rows(tensor, given)))
    return max(found, key=lambda each: each.share, default=None)


def _inputs(node: Any) -> Iterator[tuple[Any, Given]]:
    """Each that is there, turned so that its rows come first."""
    name = node.name()
    if name == _CONVOLUTION:
        tensor, weight = _saved(node, "input"), _saved(node, "weight")
        if tensor is not None and weight is not None:
            options = tuple(_plain(getattr(node, f"_saved_{option}")) for option in _OPTIONS)
            yield tensor.detach(), Given(tuple(tensor.shape), tuple(weight.shape), options)
    elif name in _MATRICES:
        left, right = (_saved(node, saved_as) for saved_as in _MATRICES[name])
        # Each is kept for the gradient of the other, so one alone may be there.
        rows, columns = (int(length) for length in node._input_metadata[0].shape)
        if left is not None:
            yield left.detach(), Given(tuple(left.shape), (int(left.shape[1]), columns))
        if right is not None:
            yield right.detach().t(), Given((columns, int(right.shape[0])), (int(right.shape[0]), rows))


def _share(torch: Any, tensor: Any) -> float:
    magnitudes = _thin(tensor).view(torch.int32) & _MAGNITUDE
    few = (magnitudes > 0) & (magnitudes < _FIRST_NORMAL)
    return float(torch.count_nonzero(few)) / float(max(1, few.numel()))


def _thin(tensor: Any) -> Any:
    """Every n-th row, and of those every n-th place of the longest dimension."""
    while tensor.numel() > _ELEMENTS:
        longest = max(range(tensor.dim()), key=lambda place: tensor.shape[place])
        every = min(tensor.shape[longest], -(-tensor.numel() // _ELEMENTS))
        tensor = tensor[(slice(None),) * longest + (slice(None, None, every),)]
    return tensor


def _some_rows(tensor: Any, given: Given) -> Any:
    part = min(1.0, _KEPT / max(1, tensor.numel()), _MOST_OPERATIONS / max(1.0, given.operations))
    rows = int(part * len(tensor)) if math.prod(given.other) <= _MOST_OTHER else 0
    return tensor[:: -(-len(tensor) // rows)].clone() if rows else None


def _saved(node: Any, name: str) -> Any:
    return saved_tensor(getattr(node, f"_raw_saved_{name}", None))


def _plain(option: Any) -> Any:
    return tuple(option) if isinstance(option, list | tuple) else option


def describe_given(given: Given) -> list[object]:
    return [given.shape, given.other, given.options]


def time_subnormal(torch: Any, subnormal: Subnormal) -> tuple[float, float] | None:
    """Milliseconds that the operation takes with these numbers, and with zeros in their place, backward included."""
    slow = subnormal.rows
    if slow is None:
        return None
    given = subnormal.given
    with torch._C.DisableTorchFunction(), torch.no_grad():
        magnitudes = slow.view(torch.int32) & _MAGNITUDE
        quick = slow.masked_fill((magnitudes > 0) & (magnitudes < _FIRST_NORMAL), 0.0)
        # Not random numbers: those of the script must not move. A weight of this size keeps results subnormal.
        other = torch.full(given.other, 0.1, device="cpu")
        run = _convolve if given.options else _multiply
        took: tuple[list[float], list[float]] = ([], [])
        for _ in range(_ROUNDS):
            for seconds, rows in zip(took, (slow, quick), strict=True):
                begun = perf_counter()
                run(torch, rows, other, given)
                seconds.append(perf_counter() - begun)
    whole = given.shape[0] / len(slow)
    # The quickest: the others were disturbed, or the first.
    return 1e3 * min(took[0]) * whole, 1e3 * min(took[1]) * whole


def _multiply(torch: Any, rows: Any, other: Any, given: Given) -> None:
    made = torch.mm(rows, other)
    torch.mm(rows.t(), made.fill_(0.1))


def _convolve(torch: Any, rows: Any, weight: Any, given: Given) -> None:
    made = torch.convolution(rows, weight, None, *given.options)
    gradients = made.fill_(0.1), rows, weight, None
    torch.ops.aten.convolution_backward(*gradients, *given.options, [False, True, False])
