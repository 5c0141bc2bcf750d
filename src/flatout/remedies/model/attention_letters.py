"""Products of tensors with a letter for each dimension, and how their operands are laid out for one attention kernel.

The dimensions of scores are counted as batch, batch, …, own dimension of the first operand, own one of the second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

_ANY_BATCH = "0123456789"
Shape = tuple[int, ...]


# Records of single calls are not frozen: that costs as much again as making them.
@dataclass(slots=True)
class Called:
    """A function of torch and what it is given. A name that ends in `_` works in place."""

    func: Callable[..., Any]
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def argument(self, at: int, name: str, otherwise: Any = None) -> Any:
        return self.args[at] if len(self.args) > at else self.kwargs.get(name, otherwise)

    def run(self) -> Any:
        return self.func(*self.args, **self.kwargs)

    def given(self, args: tuple[Any, ...]) -> Called:
        """The same with other arguments."""
        return Called(self.func, self.name, args, self.kwargs)


@dataclass(frozen=True, slots=True)
class Product:
    first: str
    second: str
    out: str


PRODUCTS = ("matmul", "bmm", "baddbmm", "einsum")


def product_of(called: Called) -> tuple[Product, int] | None:
    """And where in its arguments the first of the two operands is; None for products of another kind."""
    name, args, kwargs = called.name, called.args, called.kwargs
    if name == "einsum":
        if len(args) != 3 or not isinstance(args[0], str) or kwargs:
            return None
        letters = _einsum_letters(args[0], args[1].dim(), args[2].dim())
        return (letters, 1) if letters is not None else None
    at = 1 if name == "baddbmm" else 0
    if len(args) != at + 2 or not kwargs.keys() <= ({"alpha", "beta"} if at else set()):
        return None
    letters = _matmul_letters(args[at].dim(), args[at + 1].dim())
    return (letters, at) if letters is not None else None


@cache
def _matmul_letters(dims_first: int, dims_second: int) -> Product | None:
    most = max(dims_first, dims_second)
    if min(dims_first, dims_second) < 2 or most - 2 > len(_ANY_BATCH):
        return None
    batch = _ANY_BATCH[: most - 2]
    return Product(batch[most - dims_first :] + "xc", batch[most - dims_second :] + "cy", batch + "xy")


@cache
def _einsum_letters(equation: str, dims_first: int, dims_second: int) -> Product | None:
    given, arrow, out = equation.replace(" ", "").partition("->")
    parts = given.split(",")
    if not arrow or len(parts) != 2:
        return None
    counts = [dims - len(part.replace("...", "")) for part, dims in zip(parts, (dims_first, dims_second), strict=True)]
    most = max(counts)
    if min(counts) < 0 or most > len(_ANY_BATCH):
        return None
    batch = _ANY_BATCH[:most]
    first, second = (part.replace("...", batch[most - n :]) for part, n in zip(parts, counts, strict=True))
    product = Product(first, second, out.replace("...", batch))
    is_plain = all(len(set(letters)) == len(letters) for letters in (product.first, product.second, product.out))
    return product if is_plain and (len(first), len(second)) == (dims_first, dims_second) else None


def sizes_of(product: Product, first: Shape, second: Shape) -> dict[str, int] | None:
    """None where they do not agree."""
    sizes: dict[str, int] = {}
    for letters, shape in ((product.first, first), (product.second, second)):
        for letter, size in zip(letters, shape, strict=True):
            known = sizes.setdefault(letter, size)
            if 1 not in (known, size) and known != size:
                return None
            sizes[letter] = max(known, size)
    return sizes


@dataclass(frozen=True, slots=True)
class Head:
    """A product that gives scores: which letters are batch, each operand's own, and summed over."""

    batch: str
    first: str
    second: str
    summed: str
    axes: tuple[int, ...]


@cache
def head_of(product: Product) -> Head | None:
    """None where more than one dimension is summed over, or an operand has none of its own."""
    first, second, out = set(product.first), set(product.second), product.out
    summed = (first & second) - set(out)
    if len(summed) != 1 or (first | second) - set(out) != summed or set(out) - first - second:
        return None
    own_first = [letter for letter in out if letter not in second]
    own_second = [letter for letter in out if letter not in first]
    if not own_first or not own_second:
        return None
    own = own_first[-1] + own_second[-1]
    batch = "".join(letter for letter in out if letter not in own)
    return Head(batch, own[0], own[1], summed.pop(), tuple((batch + own).index(letter) for letter in out))


@dataclass(frozen=True, slots=True)
class Tail:
    """A product that takes weights: the value's letters, in which order to take them, and the result's order."""

    letters: str
    order: str
    out: tuple[int, ...]


@cache
def tail_of(product: Product, weights_at: int, axes: tuple[int, ...], key: int) -> Tail | None:
    """`key`: the axis of the weights that goes over the keys. None where the product does something else with it."""
    weights, value = (product.first, product.second) if weights_at == 0 else (product.second, product.first)
    batches = len(axes) - 2
    letter_of = dict(zip(axes, weights, strict=True))
    over_keys, over_queries = letter_of[key], letter_of[2 * batches + 1 - key]
    own = [letter for letter in value if letter not in weights]
    if len(own) != 1 or over_keys not in value or over_queries in value:
        return None
    batch = "".join(letter_of[axis] for axis in range(batches))
    result = batch + over_queries + own[0]
    if sorted(result) != sorted(product.out):
        return None
    return Tail(value, batch + over_keys + own[0], tuple(result.index(letter) for letter in product.out))


# Four dimensions: batch, heads, and the last two as they are.


@dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor is brought there, a view where its memory allows; what is None is left out."""

    order: tuple[int, ...] | None
    # With dimensions of size 1 where it has none.
    whole: Shape | None
    expanded: Shape | None
    joined: Shape | None

    def of(self, tensor: Any) -> Any:
        if self.order is not None:
            tensor = tensor.permute(self.order)
        if self.whole is not None:
            tensor = tensor.reshape(self.whole)
        if self.expanded is not None:
            tensor = tensor.expand(self.expanded)
        return tensor if self.joined is None else tensor.reshape(self.joined)


def lay_out(shape: Shape, places: list[int | None], batch: Shape, target: Shape, is_broadcast: bool) -> Layout:
    """`places`: which of its dimensions come to stand where, None for one that it has not.

    The batch becomes these two dimensions; what is broadcast over them may stay so, or has to be made whole.
    """
    order = tuple(at for at in places if at is not None)
    whole = tuple(1 if at is None else shape[at] for at in places)
    given, last = whole[:-2], whole[-2:]
    filled, joined = _fill(given, batch, target) if is_broadcast else (batch, target)
    return Layout(
        order if order != tuple(range(len(shape))) else None,
        whole if len(whole) != len(shape) else None,
        (*filled, *last) if filled != given else None,
        (*joined, *last) if joined != filled else None,
    )


def _fill(given: Shape, batch: Shape, target: Shape) -> tuple[Shape, Shape]:
    """What has to be expanded, and how it is joined then."""
    if prod(given) == 1:
        return given, (1, 1)
    at = next((at for at in range(len(batch) + 1) if (prod(batch[:at]), prod(batch[at:])) == target), None)
    if at is None:
        return batch, target
    outer, inner = (part if prod(part) == 1 else whole for part, whole in
                    ((given[:at], batch[:at]), (given[at:], batch[at:])))  # fmt: skip
    return (*outer, *inner), (prod(outer), prod(inner))


def operand_layout(shape: Shape, letters: str, order: str, batch: Shape, target: Shape) -> Layout:
    places = [letters.index(letter) if letter in letters else None for letter in order]
    return lay_out(shape, places, batch, target, is_broadcast=False)


def term_layout(shape: Shape, axes: tuple[int, ...], batch: Shape, key_is_first: bool, target: Shape) -> Layout:
    """Of something that is broadcast to scores with these axes."""
    own, missing = len(batch), len(axes) - len(shape)
    wanted = (*range(own), *((own + 1, own) if key_is_first else (own, own + 1)))
    places = [at - missing if (at := axes.index(axis)) >= missing else None for axis in wanted]
    return lay_out(shape, places, batch, target, is_broadcast=True)
