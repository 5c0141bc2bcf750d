"""Times operations beside another form that gives the same, when the process ends: forward, and backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any

from .link_forms import WHOLE, Form, Kind, awkward_dims, count_multiplications, describe_form, next_length

# Somebody waits for the process to end.
_MOST_TIMED, _MOST_S = 6, 2.0
_FORM_S = 0.25
_ROUNDS, _MOST_ROUNDS = 2, 20
# Multiplications at most: of larger ones a part is timed.
_MOST_WORK = 5e8
_COMPLEX = {"float32": "complex64", "float64": "complex128"}
_REAL = {wide: real for real, wide in _COMPLEX.items()}


@dataclass(frozen=True, slots=True)
class Way:
    """One of two forms, and how many times longer it takes than what is timed."""

    inputs: tuple[Any, ...]
    call: Callable[..., Any]
    times: float = 1.0


def time_forms(torch: Any, forms: Mapping[Form, Any]) -> Iterator[dict[str, object]]:
    """`forms` with the copy of a symmetric matrix, or None. Milliseconds: forward and backward of either form."""
    until = perf_counter() + _MOST_S
    for form in sorted(forms, key=lambda each: each.work, reverse=True)[:_MOST_TIMED]:
        if perf_counter() > until:
            return
        try:
            took_ms = time_form(torch, form, forms[form])
        except Exception:  # too little memory, say
            continue
        yield {"form": describe_form(form), "ms": [round(ms, 4) for ms in took_ms]}


def time_form(torch: Any, form: Form, copy: Any = None) -> tuple[float, ...]:
    # What the script has set for its own work is not for ours.
    with torch._C.DisableTorchFunction(), torch.inference_mode(False), torch.enable_grad():
        ways = make_ways(torch, form, copy)
        for way in ways:
            for value, need in zip(way.inputs, form.needs, strict=True):
                value.requires_grad_(need)
        best = [[math.inf, math.inf] for _ in ways]
        begun = perf_counter()
        for done in range(_MOST_ROUNDS):
            if done >= _ROUNDS and perf_counter() - begun > _FORM_S:
                break
            for place, way in enumerate(ways):
                # The quickest: the others were disturbed, or the first.
                best[place] = [min(pair) for pair in zip(best[place], _run(torch, way), strict=True)]
    return tuple(1e3 * way.times * seconds for way, took in zip(ways, best, strict=True) for seconds in took)


def _run(torch: Any, way: Way) -> tuple[float, float]:
    begun = perf_counter()
    made = way.call(*way.inputs)
    forward_s = perf_counter() - begun
    made = made if isinstance(made, tuple) else (made,)
    wanted = tuple(value for value in way.inputs if value.requires_grad)
    given = tuple(torch.ones_like(result) for result in made)
    # Not `torch.autograd.grad`: a call of it is noted as one of the script's.
    engine = torch.autograd.variable.Variable._execution_engine
    begun = perf_counter()
    engine.run_backward(made, given, False, False, wanted, allow_unreachable=True, accumulate_grad=False)
    return forward_s, perf_counter() - begun


def make_ways(torch: Any, form: Form, copy: Any = None) -> tuple[Way, Way]:
    """The form as it is, and the other one."""
    return _factored_again(torch, form, copy) if form.kind == "factored_again" else _WAYS[form.kind](torch, form)


def _values(torch: Any, shape: Sequence[int], dtype: str) -> Any:
    """Not random numbers: those of the script must not move."""
    return torch.linspace(-1, 1, math.prod(shape), device="cpu").to(getattr(torch, dtype)).view(*shape)


def _batch(form: Form) -> tuple[int, float]:
    """So many are timed, and how many times longer all of them take."""
    batch = min(form.sizes[0], max(2, int(form.sizes[0] * _MOST_WORK / form.work)))
    return batch, form.sizes[0] / batch


def _products(torch: Any, form: Form) -> tuple[Way, Way]:
    _, rows, inner, columns = form.sizes
    batch, times = _batch(form)
    is_second = bool(form.options[0])
    matrix = _values(torch, (inner, columns) if is_second else (rows, inner), form.dtype)
    others = _values(torch, (batch, rows, inner) if is_second else (batch, inner, columns), form.dtype)

    def spread(matrix: Any) -> Any:
        return matrix.repeat(batch, 1, 1) if form.names[0] == "repeated" else matrix.expand(batch, -1, -1)

    def multiply_each(matrix: Any, others: Any) -> Any:
        return torch.bmm(others, spread(matrix)) if is_second else torch.bmm(spread(matrix), others)

    def multiply_once(matrix: Any, others: Any) -> Any:
        if is_second:
            return (others.reshape(-1, inner) @ matrix).view(batch, rows, columns)
        return (others.mT.reshape(-1, inner) @ matrix.t()).view(batch, columns, rows).mT

    inputs = matrix, others
    return Way(inputs, multiply_each, times), Way(inputs, multiply_once, times)


def _factor(torch: Any, name: str, matrix: Any) -> tuple[Any, ...]:
    linalg = torch.linalg
    if name == "slogdet":
        return (linalg.slogdet(matrix)[1],)
    if name == "svd":
        return (linalg.svd(matrix, full_matrices=False)[1],)
    made = getattr(linalg, name)(matrix)
    return tuple(made) if isinstance(made, tuple) else (made,)


def _definite(torch: Any, side: int, dtype: str) -> Any:
    """A symmetric positive definite matrix with different eigenvalues."""
    # Rows of the rest add up to no more than a half.
    along = torch.linspace(0, 1, side, device="cpu")
    return (torch.diag(1 + along) + along.outer(along) / (2 * side)).to(getattr(torch, dtype))


def _factorizations(torch: Any, form: Form) -> tuple[Way, Way]:
    batch, times = _batch(form)
    (name,) = form.names

    def factor_each(matrix: Any) -> Any:
        return _factor(torch, name, matrix.expand(batch, -1, -1))

    def factor_once(matrix: Any) -> Any:
        return tuple(part.expand(batch, *part.shape) for part in _factor(torch, name, matrix))

    inputs = (_definite(torch, form.sizes[1], form.dtype),)
    return Way(inputs, factor_each, times), Way(inputs, factor_once)


def _transforms(torch: Any, form: Form) -> tuple[Way, Way]:
    """Either is given as much as it takes. What makes a signal longer is not timed."""
    sizes, times = list(form.sizes), 1.0
    others = [dim for dim in range(len(sizes)) if dim not in form.options]
    if others and form.work > _MOST_WORK:
        most = max(others, key=lambda dim: sizes[dim])
        sizes[most] = max(1, int(sizes[most] * _MOST_WORK / form.work))
        times = form.sizes[most] / sizes[most]
    awkward = awkward_dims(form)
    longer = [next_length(length) if dim in awkward else length for dim, length in enumerate(sizes)]
    now, other = (_transform(torch, form, shape, times) for shape in (sizes, longer))
    return now, other


def _transform(torch: Any, form: Form, shape: Sequence[int], times: float) -> Way:
    (name,), dims = form.names, form.options
    real = _REAL.get(form.dtype, form.dtype)
    if name == "r2c":
        return Way((_values(torch, shape, real),), lambda given: torch.fft.rfftn(given, dim=dims), times)
    if name in ("c2c", "r2c_whole"):
        given = (_values(torch, shape, _COMPLEX[real] if name == "c2c" else real),)
        return Way(given, lambda given: torch.fft.fftn(given, dim=dims), times)
    lengths = [shape[dim] for dim in dims]
    halved = list(shape)
    halved[dims[-1]] = halved[dims[-1]] // 2 + 1
    given = (_values(torch, halved, _COMPLEX[real]),)
    return Way(given, lambda given: torch.fft.irfftn(given, s=lengths, dim=dims), times)


def _factored_again(torch: Any, form: Form, copy: Any) -> tuple[Way, Way]:
    whole, side, columns = form.sizes
    batch = min(whole, max(1, int(whole * _MOST_WORK / form.work)))
    small = min(side, int((_MOST_WORK * whole / (batch * form.work)) ** (1 / 3) * side) + 1)
    times = whole / batch * (side / small) ** 3
    is_definite = copy is not None and int(torch.linalg.cholesky_ex(copy.detach())[1]) == 0
    right = _values(torch, (batch, small, columns if columns > 0 else small), form.dtype)

    def invert(matrix: Any) -> Any:
        inverse = torch.linalg.inv(matrix)
        return inverse if columns == WHOLE else inverse @ right

    def factor_each(matrix: Any) -> Any:
        made: list[Any] = []
        for name in form.names:
            if name == "inv":
                made.append(invert(matrix))
            else:
                made += [torch.linalg.solve(matrix, right)] if name == "solve" else _factor(torch, name, matrix)
        return tuple(made)

    def factor_once(matrix: Any) -> Any:
        made: list[Any] = []
        factor, pivots = (torch.linalg.cholesky(matrix), None) if is_definite else torch.linalg.lu_factor(matrix)
        if "cholesky" in form.names:
            made.append(factor)
        if {"slogdet", "det"} & set(form.names):
            volume = factor.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)
            made.append(2 * volume if is_definite else volume)
        if {"inv", "solve"} & set(form.names):
            given = torch.eye(small, dtype=matrix.dtype, device="cpu").expand_as(matrix) if columns == WHOLE else right
            solved = (
                torch.cholesky_solve(given, factor) if is_definite else torch.linalg.lu_solve(factor, pivots, given)
            )
            made.append(solved)
        return tuple(made)

    inputs = (_definite(torch, small, form.dtype).expand(batch, -1, -1).contiguous(),)
    return Way(inputs, factor_each, times), Way(inputs, factor_once, times)


def _enlargements(torch: Any, form: Form) -> tuple[Way, Way]:
    _, channels, height, width, high, wide, after = form.sizes
    images = min(form.sizes[0], max(1, int(form.sizes[0] * _MOST_WORK / form.work)))
    (mode,) = form.names
    corners = {"align_corners": bool(form.options[0])} if mode in ("bilinear", "bicubic") else {}
    functional = torch.nn.functional

    def enlarge(images: Any) -> Any:
        return functional.interpolate(images, size=(high, wide), mode=mode, **corners)

    inputs = (
        _values(torch, (images, channels, height, width), form.dtype),
        _values(torch, (after, channels, 1, 1), form.dtype),
    )
    times = form.sizes[0] / images
    return (
        Way(inputs, lambda images, weight: functional.conv2d(enlarge(images), weight), times),
        Way(inputs, lambda images, weight: enlarge(functional.conv2d(images, weight)), times),
    )


def _chains(torch: Any, form: Form) -> tuple[Way, Way]:
    batch, times = _batch(form) if form.sizes[0] > 1 else (1, 1.0)
    whole = form.sizes[1:]
    scale = min(1.0, (_MOST_WORK * form.sizes[0] / (batch * form.work)) ** (1 / 3))
    lengths = [max(1, round(scale * length)) for length in whole]
    batched = (batch,) if form.names[0] == "bmm" else ()
    inputs = tuple(_values(torch, (*batched, *shape), form.dtype) for shape in pairwise(lengths))

    def in_order(order: Sequence[int]) -> Way:
        def multiply(*matrices: Any) -> Any:
            splits = iter(order)

            def part(first: int, end: int) -> Any:
                if end - first < 2:
                    return matrices[first]
                split = next(splits)
                left = part(first, split)
                return left @ part(split, end)

            return part(0, len(matrices))

        larger = count_multiplications(whole, order) / count_multiplications(lengths, order)
        return Way(inputs, multiply, times * larger)

    half = len(form.options) // 2
    return in_order(form.options[:half]), in_order(form.options[half:])


_WAYS: dict[Kind, Callable[[Any, Form], tuple[Way, Way]]] = {
    "product": _products,
    "factorization": _factorizations,
    "transform": _transforms,
    "enlarged": _enlargements,
    "chain": _chains,
}
