"""Values of all pairs of rows that are formed one by one and then summed: `(a[:, None] - b).pow(2).sum(2)`.

Of so many rows and columns with so many values each, all rows * columns * values are written, read and passed back. As
a matrix product the same sums never are. That it is a difference of rows and columns is read off a few of its values;
of a product of two tensors their shapes tell it. No tensor is kept. Both ways are timed when the process ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from time import perf_counter
from typing import Any, Literal

from ..graph import saved_tensor
from .link_calls import Key

Kind = Literal["difference", "product"]

# Fewer values take less than looking at them; and so many times as many as go in.
_LEAST_VALUES, _LEAST_TIMES = 1 << 18, 4
_SUMS = ("SumBackward1", "MeanBackward1")
_NORM = "LinalgVectorNormBackward0"
# Of a difference, the rows, the columns and the values of each that are read.
_LOOKED_AT, _VALUES = 5, 64
# What is left of a sum of a row and a column, of the largest value, in units of the rounding of its type.
_ROUNDINGS = 64.0
_ROUNDINGS_MOST = 0.05
# Values that are timed when the process ends, which somebody waits for. Fewer would stay in the processor's caches.
_MOST_TIMED = 1 << 23
_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Pairs:
    """Sets of rows and columns, how many of either, and the values of each. The same of two steps are equal."""

    kind: Kind
    sets: int
    rows: int
    columns: int
    values: int

    @property
    def elements(self) -> int:
        return self.sets * self.rows * self.columns * self.values

    @property
    def is_worth_it(self) -> bool:
        given = self.sets * (self.rows + self.columns) * self.values
        return self.elements >= _LEAST_VALUES and self.elements >= _LEAST_TIMES * given


@dataclass(frozen=True, slots=True)
class FormedPairs:
    """`lines` form and sum them, the one that forms them first."""

    pairs: Pairs
    lines: tuple[Key, ...]


class PairSums:
    """Those of one step."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.seen: list[FormedPairs] = []

    def find(self, nodes: Sequence[tuple[int, Any]], maker_of: Callable[[int], Key], allowed_s: float) -> None:
        until = perf_counter() + allowed_s
        for number, node in nodes:
            name = node.name()
            if name not in _SUMS and name != _NORM:
                continue
            if perf_counter() > until:
                return
            try:
                found = self._summed(node, name)
            except (AttributeError, RuntimeError, IndexError):
                continue  # a torch that saves something else there
            if found is not None and not _are_used_elsewhere(nodes, found[1], node):
                pairs, makers = found
                keys = [maker_of(maker._sequence_nr()) for maker in makers]
                self.seen.append(FormedPairs(pairs, tuple(dict.fromkeys([*keys, maker_of(number)]))))

    def _summed(self, node: Any, name: str) -> tuple[Pairs, list[Any]] | None:
        """What is summed, and the nodes that made it, the first of them first."""
        torch = self._torch
        dims = node._saved_dim
        if dims is None or len(dims) != 1 or node._input_metadata[0].device.type != "cpu":
            return None
        with torch._C.DisableTorchFunction(), torch.no_grad():
            if name == _NORM:
                difference = self._readable(_saved(node, "self"))
                if float(node._saved_ord) != 2.0 or difference is None:
                    return None
                before = node.next_functions[0][0]
                return _with(_of_difference(torch, difference, _place(dims[0], difference.dim())), before)
            sizes = node._saved_self_sym_sizes
            if math.prod(map(int, sizes)) < _LEAST_VALUES:
                return None
            summed, at = node.next_functions[0][0], _place(dims[0], len(sizes))
            squared = self._squared(summed)
            if squared is not None:
                before = summed.next_functions[0][0]
                return _with(_of_difference(torch, squared, at), before, summed)
            if summed.name() == "MulBackward0":
                return _with(_of_product(summed, [int(size) for size in sizes], at), summed)
        return None

    def _squared(self, node: Any) -> Any:
        """What this node squares."""
        if node.name() == "PowBackward0":
            return self._readable(_saved(node, "self")) if node._saved_exponent == 2 else None
        if node.name() == "MulBackward0":
            left, right = _saved(node, "self"), _saved(node, "other")
            is_one = left is not None and right is not None and left.data_ptr() == right.data_ptr()
            return self._readable(left) if is_one and left.shape == right.shape else None
        return None

    def _readable(self, tensor: Any) -> Any:
        torch = self._torch
        is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.is_cpu
        if not is_plain or not tensor.is_floating_point() or torch._C._len_torch_dispatch_stack():
            return None
        return tensor.detach() if tensor.numel() >= _LEAST_VALUES else None


def _with(pairs: Pairs | None, *makers: Any) -> tuple[Pairs, list[Any]] | None:
    if pairs is None or not pairs.is_worth_it:
        return None
    return pairs, [maker for maker in makers if maker is not None and not hasattr(maker, "variable")]


def _are_used_elsewhere(nodes: Sequence[tuple[int, Any]], makers: Sequence[Any], last: Any) -> bool:
    """Does anything but the sum itself need them? Then they have to be formed anyway."""
    own = {*makers, last}
    return any(
        following in makers for _, node in nodes if node not in own for following, _ in node.next_functions if following
    )


def _saved(node: Any, name: str) -> Any:
    return saved_tensor(getattr(node, f"_raw_saved_{name}", None))


def _place(dim: int, dims: int) -> int:
    """Autograd saves a negative one as an integer without a sign."""
    return (int(dim) - (1 << 64) if dim >= 1 << 63 else int(dim)) % dims


def _of_difference(torch: Any, tensor: Any, at: int) -> Pairs | None:
    """Rows less columns, if each value is one of the row less one of the column."""
    values = int(tensor.shape[at])
    tensor = tensor.movedim(at, -1)
    lengths = [int(length) for length in tensor.shape[:-1]]
    long = [place for place, length in enumerate(lengths) if length > 1]
    with_place: dict[int, list[int]] = {place: [] for place in long}
    for first, second in combinations(long, 2):
        if _is_apart(torch, tensor, first, second):
            with_place[first].append(second)
            with_place[second].append(first)
    best: Pairs | None = None
    for place, others in with_place.items():
        if others:
            rows = math.prod(lengths[other] for other in others)
            sets = math.prod(lengths) // (rows * lengths[place])
            pairs = Pairs("difference", sets, rows, lengths[place], values)
            best = pairs if best is None or pairs.sets < best.sets else best
    return best


def _is_apart(torch: Any, tensor: Any, first: int, second: int) -> bool:
    """Is it a sum of what lies along `first` and what lies along `second`, and does it change along both?"""
    places = tuple(_few(length, place in (first, second)) for place, length in enumerate(tensor.shape[:-1]))
    every = -(-int(tensor.shape[-1]) // _VALUES)
    part = tensor[(*places, slice(None, None, every))].double()
    part = part.movedim((first, second), (0, 1)).flatten(2)
    left = (part - part[:1] - part[:, :1] + part[:1, :1]).abs().max()
    largest = float(part.abs().max())
    allowed = largest * min(_ROUNDINGS_MOST, _ROUNDINGS * torch.finfo(tensor.dtype).eps)
    changes = min(float((part - part[:1]).abs().max()), float((part - part[:, :1]).abs().max()))
    return math.isfinite(largest) and float(left) <= allowed < changes


def _few(length: int, is_looked_at: bool) -> slice:
    return slice(None, None, -(-length // _LOOKED_AT)) if is_looked_at else slice(0, 1)


def _of_product(node: Any, sizes: Sequence[int], at: int) -> Pairs | None:
    """Rows times columns: either factor is spread over what the other lies along."""
    along = [_lies_along(node, position, len(sizes)) for position in (0, 1)]
    if along[0] is None or along[1] is None or not (along[0][at] and along[1][at]):
        return None
    rows = columns = sets = 1
    for place, (size, left, right) in enumerate(zip(sizes, along[0], along[1], strict=True)):
        if place == at:
            continue
        if left and not right:
            rows *= size
        elif right and not left:
            columns *= size
        else:
            sets *= size
    return Pairs("product", sets, rows, columns, sizes[at]) if rows > 1 and columns > 1 else None


def _lies_along(node: Any, position: int, dims: int) -> list[bool] | None:
    """Along which dimensions of the product this factor has values of its own."""
    tensor = _saved(node, ("self", "other")[position])
    if tensor is not None:
        own = [length > 1 and stride != 0 for length, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    else:
        before, place = node.next_functions[position]
        if before is None:
            return None
        if before.name().startswith("ExpandBackward"):
            shape = before._saved_self_sym_sizes
        else:
            shape = (before.variable if hasattr(before, "variable") else before._input_metadata[place]).shape
        own = [int(length) > 1 for length in shape]
    return [False] * (dims - len(own)) + own


def describe_pairs(pairs: Pairs) -> list[object]:
    return [pairs.kind, pairs.sets, pairs.rows, pairs.columns, pairs.values]


def time_pairs(torch: Any, pairs: Pairs) -> tuple[float, float] | None:
    """Milliseconds of forming and summing all of them, and of a matrix product, backward included.

    Of many, a part is timed, and the rest taken to be alike.
    """
    sets = max(1, min(pairs.sets, _MOST_TIMED // (pairs.elements // pairs.sets)))
    share = min(1.0, _MOST_TIMED / (pairs.elements // pairs.sets * sets))
    rows = max(1, math.ceil(pairs.rows * share)) if pairs.rows >= pairs.columns else pairs.rows
    columns = pairs.columns if rows != pairs.rows else max(1, math.ceil(pairs.columns * share))
    if sets * rows * columns * pairs.values > 2 * _MOST_TIMED:
        return None
    with torch.no_grad():
        # Not random numbers: those of the script must not move.
        left = torch.linspace(-1, 1, sets * rows * pairs.values, device="cpu").view(sets, rows, pairs.values)
        right = torch.linspace(1, 2, sets * columns * pairs.values, device="cpu").view(sets, columns, pairs.values)
        given = torch.ones(sets, rows, columns, device="cpu")
        ways = (_form, _multiply) if pairs.kind == "product" else (_form_differences, _multiply_differences)
        took: tuple[list[float], list[float]] = ([], [])
        for _ in range(_ROUNDS):
            for seconds, way in zip(took, ways, strict=True):
                begun = perf_counter()
                for _ in way(left, right, given):
                    pass
                seconds.append(perf_counter() - begun)
    whole = pairs.elements / (sets * rows * columns * pairs.values)
    # The quickest: the others were disturbed, or the first.
    return 1e3 * min(took[0]) * whole, 1e3 * min(took[1]) * whole


def _form(left: Any, right: Any, given: Any) -> Iterator[Any]:
    yield (left[:, :, None] * right[:, None]).sum(3)
    spread = given[..., None]
    yield (spread * right[:, None]).sum(2)
    yield (spread * left[:, :, None]).sum(1)


def _multiply(left: Any, right: Any, given: Any) -> Iterator[Any]:
    yield left @ right.mT
    yield given @ right
    yield given.mT @ left


def _form_differences(left: Any, right: Any, given: Any) -> Iterator[Any]:
    difference = left[:, :, None] - right[:, None]
    yield difference.pow(2).sum(3)
    spread = given[..., None] * (2 * difference)
    yield spread.sum(2)
    yield -spread.sum(1)


def _multiply_differences(left: Any, right: Any, given: Any) -> Iterator[Any]:
    yield left.pow(2).sum(2)[:, :, None] + right.pow(2).sum(2)[:, None] - 2 * left @ right.mT
    yield 2 * (given.sum(2)[..., None] * left - given @ right)
    yield 2 * (given.sum(1)[..., None] * right - given.mT @ left)
