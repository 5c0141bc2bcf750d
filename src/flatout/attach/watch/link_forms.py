"""Operations on the host that cost what they do for their form, not for what has to be computed.

A product or a factorization of one matrix spread over a batch, Fourier transforms of lengths with large prime factors,
several factorizations of one matrix, a convolution of 1x1 behind an interpolation, products of several matrices in a
dear order. They are read off the autograd graph: shapes, strides and which node gave what. Both forms are timed when
the process ends. No tensor of the script is kept, but for a copy of one symmetric matrix that may turn out to be
positive definite.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from time import perf_counter
from typing import Any, Literal

from ..graph import saved_tensor
from .link_calls import Key

Kind = Literal["product", "factorization", "transform", "factored_again", "enlarged", "chain"]

# In multiplications, about: smaller ones take less than looking at them.
_LEAST_WORK = 1e5
# A factor of one matrix moves as much memory as so many multiplications, where it is spread.
_MOVED = 8
# Transforms of lengths with no larger prime factor have kernels of their own.
_OWN_KERNELS = 7
_MOST_HOPS = 3
_SPREADING = {"ExpandBackward0": "expanded", "RepeatBackward0": "repeated"}
_VIEWS = frozenset({"ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0", "TransposeBackward0"})
_TURNS = frozenset({"TBackward0", "TransposeBackward0", "PermuteBackward0", "MatrixHBackward0", "MtBackward0"})
_FACTORIZATIONS = {
    "LinalgInvExBackward0": "inv",
    "LinalgSlogdetBackward0": "slogdet",
    "LinalgDetBackward0": "det",
    "LinalgCholeskyExBackward0": "cholesky",
    "LinalgSolveExBackward0": "solve",
    "LinalgQrBackward0": "qr",
    "LinalgEighBackward0": "eigh",
    "LinalgSvdBackward0": "svd",
}
# What one factorization (Cholesky or LU) serves.
_SERVED = frozenset({"inv", "slogdet", "det", "cholesky", "solve"})
_PRODUCTS = frozenset({"MmBackward0", "MvBackward0", "BmmBackward0"})
# How a product names both factors.
_CHAINED = {"MmBackward0": ("self", "mat2"), "MvBackward0": ("self", "vec"), "BmmBackward0": ("self", "mat2")}
# A batch goes through three nodes from one product to the next, and perhaps through one that transposes.
_CHAIN_HOPS = 5
_PASSED = _VIEWS | _TURNS | {"ExpandBackward0"}
# A letter names each matrix, and the cheapest order of so many is found in a millisecond.
_MOST_PRODUCTS = 16
_LEAST_RATIO = 1.5  # of multiplications
_TRANSFORMS = {"FftR2CBackward0": "r2c", "FftC2CBackward0": "c2c", "FftC2RBackward0": "c2r"}
_ENLARGING = {
    "UpsampleNearest2DBackward0": "nearest",
    "UpsampleNearestExact2DBackward0": "nearest-exact",
    "UpsampleBilinear2DBackward0": "bilinear",
    "UpsampleBicubic2DBackward0": "bicubic",
}
WHOLE = -1  # the inverse itself is needed, not its products
# Of a matrix, rows that are compared with columns, and the elements of a copy.
_COMPARED, _COPIED, _MOST_COPIES = 64, 1 << 20, 2


@dataclass(frozen=True, slots=True)
class Form:
    """What is needed to make both forms. The same operation of two steps is equal.

    `sizes` and `options` by kind. product: batch, rows, inner, columns; which factor is one matrix.
    factorization: batch, side. transform: the shape, the real side's; its dimensions. factored_again: batch, side,
    columns of products with the inverse. enlarged: images, channels, height and width, those after, channels after;
    whether corners are aligned. chain: batch, rows of each matrix and columns of the last; its order and the cheapest,
    as in `Chain`.
    """

    kind: Kind
    sizes: tuple[int, ...]
    names: tuple[str, ...]
    dtype: str
    needs: tuple[bool, ...]  # a gradient, of which inputs
    options: tuple[int, ...] = ()

    @property
    def work(self) -> float:
        """Multiplications of forward, about."""
        sizes = self.sizes
        if self.kind == "product":
            return float(math.prod(sizes[:3])) * (sizes[3] + _MOVED)
        if self.kind == "transform":
            lengths = [sizes[dim] for dim in self.options]
            return float(math.prod(sizes)) * _MOVED * math.log2(max(2, math.prod(lengths)))
        if self.kind == "enlarged":
            images, channels, _, _, height, width, after = sizes
            return float(images * height * width) * channels * after
        if self.kind == "chain":
            return float(sizes[0] * count_multiplications(sizes[1:], self.options[: len(self.options) // 2]))
        return float(sizes[0]) * sizes[1] ** 3 * len(self.names)


@dataclass(slots=True)
class FoundForm:
    form: Form
    lines: tuple[Key, ...]  # the one of the operation first
    # Of a transform: what it is given is padded, so that another length would do.
    is_padded: bool = False
    copy: Any = None  # of a symmetric matrix, for Cholesky to be tried


@dataclass(slots=True)
class _Pass:
    """One backward pass that is looked at."""

    nodes: Sequence[tuple[int, Any]]
    maker_of: Callable[[int], Key]
    until: float
    # By what gives a matrix, the nodes that factor it.
    factored: dict[tuple[Any, int], list[tuple[int, Any]]] = field(default_factory=dict)
    padded: set[int] = field(default_factory=set)  # lengths of transforms of padded signals
    chained: set[Any] = field(default_factory=set)  # products that are part of a chain
    _taken: Counter[Any] = field(default_factory=Counter)

    def takers_of(self, giver: Any) -> int:
        """How many times what this node gives is taken."""
        if not self._taken:
            self._taken.update(given for _, node in self.nodes for given, _ in node.next_functions)
        return self._taken[giver]


class OtherForms:
    """Those of one step."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.seen: list[FoundForm] = []
        self._copies = 0

    def find(self, nodes: Sequence[tuple[int, Any]], maker_of: Callable[[int], Key], allowed_s: float) -> None:
        now = _Pass(nodes, maker_of, perf_counter() + allowed_s)
        found: list[FoundForm] = []
        with self._torch._C.DisableTorchFunction(), self._torch.no_grad():
            for number, node in nodes:
                recognise = _RECOGNISED.get(node.name())
                if recognise is None:
                    continue
                if perf_counter() > now.until:
                    return
                try:
                    if node._input_metadata[0].device.type == "cpu":
                        found += recognise(now, number, node)
                except (AttributeError, RuntimeError, IndexError, ValueError):
                    continue  # a torch that saves something else there
            try:
                found += self._factored(now)
            except (AttributeError, RuntimeError, IndexError, ValueError):
                pass
        for each in found:
            if each.form.kind == "transform":
                each.is_padded = all(each.form.sizes[dim] in now.padded for dim in awkward_dims(each.form))
        self.seen += [each for each in found if each.form.work >= _LEAST_WORK]

    def _factored(self, now: _Pass) -> Iterator[FoundForm]:
        """Matrices that several operations factor, or that are inverted to multiply with the inverse."""
        for (giver, place), users in now.factored.items():
            if perf_counter() > now.until:
                return
            names = tuple(sorted(_FACTORIZATIONS[node.name()] for _, node in users))
            inverses = [node for _, node in users if node.name() == "LinalgInvExBackward0"]
            columns = _columns_of(now.nodes, inverses) if inverses else 0
            if columns != WHOLE:
                columns += sum(_right_sides(node) for _, node in users if node.name() == "LinalgSolveExBackward0")
            is_solved = names == ("inv",) and columns not in (0, WHOLE)
            shape = _shape_of(giver, place)
            if not set(names) <= _SERVED or not (len(names) > 1 or is_solved) or len(shape) < 2:
                continue
            dtype = str(users[0][1]._input_metadata[0].dtype).removeprefix("torch.")
            form = Form("factored_again", (math.prod(shape[:-2]), shape[-1], columns), names, dtype, (True,))
            lines = tuple(dict.fromkeys(now.maker_of(number) for number, _ in sorted(users, key=lambda user: user[0])))
            found = FoundForm(form, lines)
            if form.work >= _LEAST_WORK and self._copies < _MOST_COPIES:
                self._copies += 1
                found.copy = _symmetric_copy([node for _, node in users])
            yield found


def _product(now: _Pass, number: int, node: Any) -> Iterator[FoundForm]:
    first, names = _FACTORS[node.name()]
    made = node._input_metadata[0]
    batch, rows, columns = (int(length) for length in made.shape)
    if batch < 2:
        return
    saved = [saved_tensor(getattr(node, f"_raw_saved_{name}", None)) for name in names]
    edges = node.next_functions[first : first + 2]
    for position in (0, 1):
        how, spreader = _spread(edges[position][0], saved[position])
        inner = _inner(saved, edges)
        if how and inner:
            needs = edges[position][0] is not None, edges[1 - position][0] is not None
            dtype = str(made.dtype).removeprefix("torch.")
            form = Form("product", (batch, rows, inner, columns), (how,), dtype, needs, (position,))
            yield FoundForm(form, _lines(now, number, spreader))
            return


def _spread(node: Any, saved: Any = None) -> tuple[str, Any]:
    """How one matrix was spread over the batch that this node gives, and the node that did; empty: it was not."""
    shape = None
    for _ in range(_MOST_HOPS):
        if node is None or hasattr(node, "variable"):
            break
        shape = shape or [int(length) for length in node._input_metadata[0].shape]
        name = node.name()
        if name in _SPREADING:
            before = [int(length) for length in node._saved_self_sym_sizes]
            if math.prod(before[:-2]) == 1 and sorted(before[-2:]) == sorted(shape[-2:]):
                return _SPREADING[name], node
            break
        if name not in _VIEWS:
            break
        node = node.next_functions[0][0]
    if saved is not None and saved.dim() == 3 and saved.stride(0) == 0:
        return "expanded", None
    return "", None


def _inner(saved: Sequence[Any], edges: Sequence[tuple[Any, int]]) -> int:
    for position in (0, 1):
        if saved[position] is not None:
            return int(saved[position].shape[2 - position])
        if edges[position][0] is not None and not hasattr(edges[position][0], "variable"):
            return int(_shape_of(*edges[position])[2 - position])
    return 0


def _factorization(now: _Pass, number: int, node: Any) -> Iterator[FoundForm]:
    giver, place = node.next_functions[0]
    if giver is None:
        return
    shape = _shape_of(giver, place)
    how, spreader = _spread(giver)
    if how and math.prod(shape[:-2]) > 1:
        name = _FACTORIZATIONS[node.name()]
        if name != "solve":  # of many right sides it is not known how they lie
            dtype = str(node._input_metadata[0].dtype).removeprefix("torch.")
            form = Form("factorization", (math.prod(shape[:-2]), shape[-1]), (name,), dtype, (True,))
            yield FoundForm(form, _lines(now, number, spreader))
        return
    now.factored.setdefault((giver, place), []).append((number, node))


def _columns_of(nodes: Sequence[tuple[int, Any]], inverses: Sequence[Any]) -> int:
    """Of all that these inverses are multiplied with; `WHOLE` where they are needed for something else."""
    views = {node for _, node in nodes if node.name() in _TURNS and node.next_functions[0][0] in inverses}
    columns = 0
    for _, node in nodes:
        for position, (given, _) in enumerate(node.next_functions):
            if given is None or node in views or (given not in inverses and given not in views):
                continue
            if node.name() not in _PRODUCTS:
                return WHOLE
            made = [int(length) for length in node._input_metadata[0].shape]
            columns += 1 if node.name() == "MvBackward0" else made[-1 if position == 0 else -2]
    return columns or WHOLE


def _right_sides(node: Any) -> int:
    made = [int(length) for length in node._input_metadata[0].shape]
    return made[-1] if len(made) > 1 else 1


def _symmetric_copy(nodes: Sequence[Any]) -> Any:
    """A copy of the matrix, or of its inverse, if it is symmetric as far as can be seen: of its first rows if large."""
    for node in nodes:
        for name in ("A", "inverse"):
            matrix = saved_tensor(getattr(node, f"_raw_saved_{name}", None))
            if matrix is None or not matrix.is_floating_point() or matrix.dim() < 2:
                continue
            matrix = matrix.detach().reshape(-1, *matrix.shape[-2:])[0]
            every = -(-len(matrix) // _COMPARED)
            part = matrix[::every, ::every]
            apart, largest = float((part - part.mT).abs().max()), float(part.abs().max())
            if not apart <= 1e-3 * largest:
                return None
            side = min(len(matrix), math.isqrt(_COPIED))
            return matrix[:side, :side].clone()
    return None


def _transform(now: _Pass, number: int, node: Any) -> Iterator[FoundForm]:
    name = _TRANSFORMS[node.name()]
    made = node._input_metadata[0]
    shape = [int(length) for length in made.shape]
    if name == "r2c":
        given = saved_tensor(node._raw_saved_self)
        if given is None:
            return
        name = name if node._saved_onesided else "r2c_whole"
        shape = [int(length) for length in given.shape]
    dims = tuple(_dim(dim, len(shape)) for dim in node._saved_dim)
    before = node.next_functions[0][0]
    if before is not None and before.name() == "ConstantPadNdBackward0" and name != "c2r":
        now.padded.update(shape[dim] for dim in dims)
    form = Form("transform", tuple(shape), (name,), str(made.dtype).removeprefix("torch."), (True,), dims)
    if awkward_dims(form):
        yield FoundForm(form, _lines(now, number, None))


def _dim(dim: int, dims: int) -> int:
    """Autograd saves a negative one as an integer without a sign."""
    return (int(dim) - (1 << 64) if dim >= 1 << 63 else int(dim)) % dims


def awkward_dims(form: Form) -> list[int]:
    return [dim for dim in form.options if _largest_factor(form.sizes[dim]) > _OWN_KERNELS]


def _largest_factor(number: int) -> int:
    largest, divisor = 1, 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            largest, number = divisor, number // divisor
        divisor += 1
    return max(largest, number)


def next_length(length: int) -> int:
    """The next one that has no factors but 2, 3 and 5."""
    while _largest_factor(length) > 5:
        length += 1
    return length


def _enlarged(now: _Pass, number: int, node: Any) -> Iterator[FoundForm]:
    enlarger = node.next_functions[0][0]
    how = None if enlarger is None else _ENLARGING.get(enlarger.name())
    weight = saved_tensor(node._raw_saved_weight)
    if how is None or weight is None or weight.dim() != 4 or math.prod(weight.shape[2:]) != 1:
        return
    is_plain = set(node._saved_stride) == {1} and set(node._saved_padding) == {0} and node._saved_groups == 1
    if not is_plain or node._saved_transposed:
        return
    before = [int(length) for length in enlarger._saved_self_sym_sizes]
    after = [int(length) for length in enlarger._input_metadata[0].shape[2:]]
    others = (other for _, other in now.nodes if other is not node)
    if math.prod(after) <= math.prod(before[2:]) or any(
        following is enlarger or following == enlarger for other in others for following, _ in other.next_functions
    ):
        return
    needs = enlarger.next_functions[0][0] is not None, node.next_functions[1][0] is not None
    dtype = str(node._input_metadata[0].dtype).removeprefix("torch.")
    corners = (int(bool(getattr(enlarger, "_saved_align_corners", False))),)
    form = Form("enlarged", (*before, *after, int(weight.shape[0])), (how,), dtype, needs, corners)
    yield FoundForm(form, _lines(now, number, enlarger))


@dataclass(slots=True)
class Chain:
    """Products of products, flattened: which matrices, and in which order they are multiplied.

    An order tells before which matrix each product splits its own, the whole chain first, then all to the left of that
    split, then all to the right: (A B) C is 2, 1.
    """

    lengths: list[int] = field(default_factory=list)  # rows of each matrix, and columns of the last
    needs: list[bool] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)  # of the products
    is_dense: bool = True

    def add_product(self, now: _Pass, node: Any, is_turned: bool) -> None:
        self.numbers.append(node._sequence_nr())
        now.chained.add(node)
        place = len(self.order)
        self.order.append(0)
        inner = _inner_length(node)
        made = _shape_of(node, 0)
        columns = [] if node.name() == "MvBackward0" else made[-1:]
        shapes = [[*made, inner], [inner]] if not columns else [[*made[:-1], inner], [*made[:-2], inner, *columns]]
        for position in (1, 0) if is_turned else (0, 1):
            self._add_factor(now, node, position, shapes[position], is_turned)
            if not self.order[place]:
                self.order[place] = len(self.needs)

    def _add_factor(self, now: _Pass, node: Any, position: int, shape: Sequence[int], is_turned: bool) -> None:
        giver = node.next_functions[position][0]
        product, turns = _product_behind(now, giver, shape)
        if product is not None and len(self.numbers) < _MOST_PRODUCTS:
            self.add_product(now, product, is_turned != turns)
            return
        value = saved_tensor(getattr(node, f"_raw_saved_{_CHAINED[node.name()][position]}", None))
        value = getattr(giver, "variable", None) if value is None else value
        self.is_dense = self.is_dense and (value is None or str(value.layout) == "torch.strided")
        self.needs.append(giver is not None)
        rows, columns = (*shape, 1) if len(shape) == 1 else shape[-2:]
        if is_turned:
            rows, columns = columns, rows
        self.lengths = [*(self.lengths or [rows]), columns]


def _chain(now: _Pass, number: int, node: Any) -> Iterator[FoundForm]:
    """Products whose last one this is: nodes come with the last one first."""
    if node in now.chained or not any(_leads_to_product(giver) for giver, _ in node.next_functions):
        return
    chain = Chain()
    chain.add_product(now, node, False)
    if len(chain.order) < 2 or not chain.is_dense:
        return
    best = cheapest_order(tuple(chain.lengths))
    costs = [count_multiplications(chain.lengths, order) for order in (chain.order, best)]
    if costs[0] < _LEAST_RATIO * costs[1]:
        return
    made = node._input_metadata[0]
    batch = int(made.shape[0]) if len(made.shape) > 2 else 1
    dtype = str(made.dtype).removeprefix("torch.")
    names = ("bmm" if len(made.shape) > 2 else "mm",)
    form = Form("chain", (batch, *chain.lengths), names, dtype, tuple(chain.needs), (*chain.order, *best))
    yield FoundForm(form, tuple(dict.fromkeys(now.maker_of(each) for each in chain.numbers)))


def _leads_to_product(node: Any) -> bool:
    """By names alone: most products have no other behind them, and shapes take longer to read."""
    for _ in range(_CHAIN_HOPS):
        name = "" if node is None else node.name()
        if name in _CHAINED:
            return True
        if name not in _PASSED:
            return False
        node = node.next_functions[0][0]
    return False


def _product_behind(now: _Pass, node: Any, shape: Sequence[int]) -> tuple[Any, bool]:
    """The product that gives this factor and nothing else, and whether it is transposed."""
    shape, is_turned = list(shape), False
    passed: list[Any] = []
    for _ in range(_CHAIN_HOPS):
        if node is None or hasattr(node, "variable"):
            break
        passed.append(node)
        name, made = node.name(), _shape_of(node, 0)
        if name in _CHAINED:
            is_ours = made == shape and all(now.takers_of(each) == 1 for each in passed)
            return (node, is_turned) if is_ours else (None, False)
        if name in _TURNS:
            if made != shape or not _turns_matrices(node, len(made)):
                break
            shape[-2:] = shape[:-3:-1]
            is_turned = not is_turned
        elif name not in _PASSED or (name == "ExpandBackward0" and list(node._saved_self_sym_sizes) != made):
            break  # what keeps the order of all values is no other matrix, if it has the same shape in the end
        node = node.next_functions[0][0]
    return None, False


def _turns_matrices(node: Any, dims: int) -> bool:
    """Of all dimensions only the last two change places."""
    if node.name() == "TransposeBackward0":
        return {_dim(node._saved_dim0, dims), _dim(node._saved_dim1, dims)} == {dims - 2, dims - 1}
    if node.name() == "PermuteBackward0":
        order = [_dim(dim, dims) for dim in node._saved_dims]
        return order == [*range(dims - 2), dims - 1, dims - 2]
    return node.name() == "TBackward0" and dims == 2


def _inner_length(node: Any) -> int:
    for position, name in enumerate(_CHAINED[node.name()]):
        saved = saved_tensor(getattr(node, f"_raw_saved_{name}", None))
        giver, place = node.next_functions[position]
        if saved is not None or giver is not None:
            shape = _shape_of(giver, place) if saved is None else saved.shape
            return int(shape[-1] if position == 0 or len(shape) == 1 else shape[-2])
    raise ValueError(node.name())


def count_multiplications(lengths: Sequence[int], order: Sequence[int]) -> int:
    splits = iter(order)

    def count(first: int, end: int) -> int:
        if end - first < 2:
            return 0
        split = next(splits)
        return lengths[first] * lengths[split] * lengths[end] + count(first, split) + count(split, end)

    return count(0, len(lengths) - 1)


@lru_cache(maxsize=64)  # steps, and products in a loop, have the same again and again
def cheapest_order(lengths: tuple[int, ...]) -> tuple[int, ...]:
    """With the fewest multiplications, by the matrix-chain recurrence."""
    matrices = len(lengths) - 1
    costs, splits = {(first, first + 1): 0 for first in range(matrices)}, {}
    for count in range(2, matrices + 1):
        for first in range(matrices - count + 1):
            end = first + count
            costs[first, end], splits[first, end] = min(
                (costs[first, split] + costs[split, end] + lengths[first] * lengths[split] * lengths[end], split)
                for split in range(first + 1, end)
            )

    def order(first: int, end: int) -> tuple[int, ...]:
        if end - first < 2:
            return ()
        split = splits[first, end]
        return (split, *order(first, split), *order(split, end))

    return order(0, matrices)


def _batched(now: _Pass, number: int, node: Any) -> Iterator[FoundForm]:
    spread = list(_product(now, number, node))
    yield from spread or _chain(now, number, node)


def _shape_of(node: Any, place: int) -> list[int]:
    shape = node.variable.shape if hasattr(node, "variable") else node._input_metadata[place].shape
    return [int(length) for length in shape]


def _lines(now: _Pass, number: int, before: Any) -> tuple[Key, ...]:
    numbers = [number] if before is None else [number, before._sequence_nr()]
    return tuple(dict.fromkeys(now.maker_of(each) for each in numbers))


# Where the first factor is among what a node passes gradients to, and how it names both.
_FACTORS = {"BmmBackward0": (0, ("self", "mat2")), "BaddbmmBackward0": (1, ("batch1", "batch2"))}
# By the name of a node, what tells whether it has another form.
_RECOGNISED: dict[str, Callable[[_Pass, int, Any], Iterator[FoundForm]]] = {
    **dict.fromkeys(_CHAINED, _chain),
    **dict.fromkeys(_FACTORS, _product),
    "BmmBackward0": _batched,
    **dict.fromkeys(_FACTORIZATIONS, _factorization),
    **dict.fromkeys(_TRANSFORMS, _transform),
    "ConvolutionBackward0": _enlarged,
}


def describe_found(found: FoundForm) -> dict[str, object]:
    form = found.form
    lengths = [form.sizes[dim] for dim in awkward_dims(form)] if form.kind == "transform" else []
    return {
        "form": describe_form(form),
        "is_padded": found.is_padded,
        "lengths": [max(lengths), next_length(max(lengths))] if lengths else None,
    }


def describe_form(form: Form) -> list[object]:
    return [form.kind, form.sizes, form.names, form.dtype, form.needs, form.options]
