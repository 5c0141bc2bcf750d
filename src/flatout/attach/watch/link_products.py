"""The heaviest operations of a sampled step: how much of what they multiply is zero, and of what they give is unread.

A row of a result whose gradient is zero has no effect on the loss. Only host memory is read, and only a sample of it;
on a device, in the one step at whose end it is waited for anyway. No tensor of the script is kept.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import Any

from ..graph import saved_tensor
from .link_calls import Key
from .link_subnormal import Subnormal, find_subnormal

# So many operations are looked at in a pass, the heaviest first; what they read is a sample of this size.
_MOST = 16
_ELEMENTS = 1 << 17
_LEAST_ROWS, _MOST_ROWS = 64, 1024
# Smaller ones take less than looking at them.
_LEAST_OPERATIONS = 1e5
# What an operation takes for an element that is not multiplied, in multiplications: it moves memory.
_MOVED = 8.0
# Where the factors are among what a node passes gradients to, and how it names them.
_FACTORS = {
    "AddmmBackward0": ((1, "mat1"), (2, "mat2")),
    "MmBackward0": ((0, "self"), (1, "mat2")),
    "BmmBackward0": ((0, "self"), (1, "mat2")),
    "BaddbmmBackward0": ((1, "batch1"), (2, "batch2")),
}
_CONVOLUTION = "ConvolutionBackward0"
# These work row by row, and take long for many columns.
_ROW_WISE = frozenset({"LogSoftmaxBackward0", "SoftmaxBackward0", "NativeLayerNormBackward0", "GeluBackward0"})
# Between the loss and an operation: which of its rows have a gradient depends on their values, so that it is known only
# when all of them are there (the largest over a set of points).
_CHOOSING = (
    "MaxBackward", "MinBackward", "AmaxBackward", "AminBackward", "TopkBackward", "SortBackward", "KthvalueBackward",
    "MedianBackward", "ModeBackward", "MaxPool", "AdaptiveMaxPool", "FractionalMaxPool", "CummaxBackward",
)  # fmt: skip
# The same where a row is so narrow that all of it may be cut off: a hinge, a clipped ratio.
_CUTTING = ("ReluBackward", "ClampBackward", "ThresholdBackward", "MaximumBackward", "MinimumBackward", "WhereBackward")
_NARROW = 16


@dataclass(slots=True, eq=False)
class Operation:
    """One of the heaviest of a pass."""

    key: Key
    operations: float
    channels_at: int  # the dimension within which a row lies
    is_chosen: bool
    unread: float | None = None  # share of its rows whose gradient is zero
    factor: Factor | None = None
    subnormal: Subnormal | None = None


@dataclass(frozen=True, slots=True)
class Factor:
    """One that needs no gradient: rows, inner and columns of its product, and which part of it is not zero."""

    size: tuple[int, int, int]
    density: float


class Operations:
    """Those of one step."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._plain = (torch.Tensor, torch.nn.Parameter)
        # May gradients be read that lie on a device? The host waits for it then.
        self.may_wait = False
        self.seen: list[Operation] = []

    def find(
        self, nodes: Sequence[tuple[int, Any]], maker_of: Callable[[int], Key], allowed_s: float
    ) -> list[tuple[Any, Operation]]:
        """The heaviest of these nodes, which are in the order in which autograd runs them."""
        until = perf_counter() + allowed_s
        chosen: set[Any] = set()
        found: list[tuple[float, int, Any, bool]] = []
        for number, node in nodes:
            name = node.name()
            chooses, cuts, computes = _traits_of(name)
            is_chosen = chooses or node in chosen or (cuts and _is_narrow(node))
            if is_chosen:
                chosen.update(following for following, _ in node.next_functions if following is not None)
            operations = self._operations_of(node, name) if computes else 0.0
            if operations >= _LEAST_OPERATIONS:
                found.append((operations, number, node, is_chosen))
        found.sort(key=lambda item: item[:2], reverse=True)
        looked_at: list[tuple[Any, Operation]] = []
        for operations, number, node, is_chosen in found[:_MOST]:
            if perf_counter() > until:
                break
            channels_at = 1 if node.name() == _CONVOLUTION else -1
            operation = Operation(maker_of(number), operations, channels_at, is_chosen)
            operation.factor = self._constant_factor(node)
            operation.subnormal = find_subnormal(self._torch, node, self._is_readable)
            looked_at.append((node, operation))
            self.seen.append(operation)
        return looked_at

    def read_gradient(self, operation: Operation, gradients: Any) -> None:
        """What backward asks of it, before it runs."""
        gradient: Any = gradients[0] if gradients else None
        is_there = self.may_wait and getattr(gradient, "is_cuda", False)
        if operation.is_chosen or not self._is_readable(gradient, is_there) or gradient.dim() < 2:
            return
        torch = self._torch
        with torch._C.DisableTorchFunction(), torch.no_grad():
            rows = gradient.detach().movedim(operation.channels_at, -1)
            # Whole rows: of scores of which one is picked, all other gradients in the row are zero.
            width = max(1, rows.shape[-1])
            rows = _thin(rows, width * min(_MOST_ROWS, max(_LEAST_ROWS, _ELEMENTS // width)))
            read = (rows != 0).any(-1)
            operation.unread = 1.0 - float(torch.count_nonzero(read)) / max(1, read.numel())

    def _operations_of(self, node: Any, name: str) -> float:
        try:
            made = node._input_metadata[0]
            if not (made.device.type == "cpu" or self.may_wait):
                return 0.0
            elements = float(math.prod(made.shape))
            if name in _ROW_WISE:
                return _MOVED * elements
            if name == _CONVOLUTION:
                weight = _saved(node, "weight")
                return 0.0 if weight is None else elements * float(math.prod(weight.shape[1:]))
            return elements * self._inner_of(node, name)
        except (AttributeError, RuntimeError, IndexError):
            return 0.0  # a torch that saves something else there

    def _inner_of(self, node: Any, name: str) -> float:
        for position, factor in enumerate(_FACTORS[name]):
            tensor = _saved(node, factor[1])
            if tensor is not None:
                return float(tensor.shape[-1 if position == 0 else -2])
        return 0.0

    def _constant_factor(self, node: Any) -> Factor | None:
        name = node.name()
        for position, (place, saved_as) in enumerate(_FACTORS.get(name, ())):
            following = node.next_functions
            if place >= len(following) or following[place][0] is not None:
                continue  # it needs a gradient: its values are another layer's results
            tensor: Any = _saved(node, saved_as)
            if not self._is_readable(tensor) or tensor.dim() < 2:
                continue
            made = node._input_metadata[0].shape
            batch = math.prod(made[:-2])
            rows, inner, columns = batch * int(made[-2]), int(tensor.shape[-1]), int(made[-1])
            if position == 1:  # seen from it, the product is turned over
                rows, inner, columns = batch * columns, int(tensor.shape[-2]), int(made[-2])
            density = self._density(tensor)
            # All zeros is no sparse matrix: the state that a recurrent network begins with, say.
            return Factor((rows, inner, columns), density) if density else None
        return None

    def _density(self, tensor: Any) -> float:
        torch = self._torch
        with torch._C.DisableTorchFunction(), torch.no_grad():
            part = _thin(tensor.detach(), _ELEMENTS)
            return float(torch.count_nonzero(part)) / float(max(1, part.numel()))

    def _is_readable(self, tensor: Any, is_on_device: bool = False) -> bool:
        return bool(
            type(tensor) in self._plain
            and (tensor.is_cpu or is_on_device)
            and tensor.layout is self._torch.strided
            and tensor.is_floating_point()
            and not self._torch._C._len_torch_dispatch_stack()
        )


@lru_cache(maxsize=512)
def _traits_of(name: str) -> tuple[bool, bool, bool]:
    """Of a node of this name: does it choose by value, may it cut, is it a heavy one? Most are nothing of it."""
    computes = name in _FACTORS or name in _ROW_WISE or name == _CONVOLUTION
    return name.startswith(_CHOOSING), name.startswith(_CUTTING), computes


def _is_narrow(node: Any) -> bool:
    shape = node._input_metadata[0].shape
    return not shape or shape[-1] < _NARROW or len(shape) < 2


def _thin(tensor: Any, most: int) -> Any:
    """A view of about so many elements: every n-th along the longest of all dimensions but the last."""
    while tensor.dim() > 1 and tensor.numel() > most:
        lengths = tensor.shape[:-1]
        longest = max(range(len(lengths)), key=lambda place: lengths[place])
        if lengths[longest] < 2:
            break
        every = min(lengths[longest], -(-tensor.numel() // most))
        tensor = tensor[(slice(None),) * longest + (slice(None, None, every),)]
    return tensor


def _saved(node: Any, name: str) -> Any:
    return saved_tensor(getattr(node, f"_raw_saved_{name}", None))


# How much a sparse product gains depends on the processor, on torch's kernels for it, on the sizes and on how much is
# not zero. So the same product is timed either way when the process ends.

# What one product may take at most; of a larger one, a part of the columns is timed.
_MOST_OPERATIONS, _MOST_VALUES = 2e8, 1 << 24
_ROUNDS = 3
_STRIDE = 7919  # a prime


def describe_factor(factor: Factor) -> dict[str, object]:
    return {"size": factor.size, "density": round(factor.density, 6)}


def time_sparse(torch: Any, factor: Factor) -> tuple[float, float] | None:
    """Milliseconds that a dense and a sparse product of this kind take, backward included; None where it is too large.

    Backward multiplies with the same factor once more, turned over.
    """
    rows, inner, columns = factor.size
    part = min(1.0, _MOST_OPERATIONS / max(1.0, float(rows) * inner * columns))
    narrow = max(1, int(columns * part))
    if rows * inner + (rows + inner) * narrow > _MOST_VALUES:
        return None
    filled = max(1, int(factor.density * rows * inner))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says once that rows in compressed form are new
        # Not random numbers: those of the script must not move. Rows are filled evenly, columns by a stride.
        places = torch.arange(filled, device="cpu")
        dense = torch.zeros(rows, inner, device="cpu")
        dense[(places * rows) // filled, (places * _STRIDE) % inner] = 1.0
        sparse, turned = dense.to_sparse_csr(), dense.t().to_sparse_csr()
        right, made = torch.ones(inner, narrow, device="cpu"), torch.ones(rows, narrow, device="cpu")
        took: tuple[list[float], list[float]] = ([], [])
        for _ in range(_ROUNDS):
            for seconds, (forward, backward) in zip(took, ((dense, dense.t()), (sparse, turned)), strict=True):
                begun = perf_counter()
                torch.mm(forward, right)
                torch.mm(backward, made)
                seconds.append(perf_counter() - begun)
    whole = columns / narrow
    # The quickest: the others were disturbed, or the first.
    return 1e3 * min(took[0]) * whole, 1e3 * min(took[1]) * whole
