"""Operations that have another form, and what only looks like it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F

from flatout.attach.watch.link_form_times import make_ways, time_form, time_forms
from flatout.attach.watch.link_forms import (
    WHOLE,
    Form,
    FoundForm,
    OtherForms,
    cheapest_order,
    count_multiplications,
    describe_found,
    next_length,
)
from tests.unit.attach.watch.passes import nodes_of

_BATCH, _SIDE = 32, 24


def look(made: torch.Tensor) -> list[FoundForm]:
    """As a window does; the line of a node is its number."""
    forms = OtherForms(torch)
    forms.find(nodes_of(made), lambda number: (number, 1, False), 10.0)
    return forms.seen


def leaf(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def spread(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.expand(_BATCH, -1, -1)


@pytest.mark.parametrize(
    ("make", "sizes", "position"),
    [
        (lambda w, x: torch.bmm(spread(w), x.detach()), (_BATCH, _SIDE, _SIDE, 16), 0),
        (lambda w, x: torch.bmm(spread(w), x), (_BATCH, _SIDE, _SIDE, 16), 0),
        (lambda w, x: torch.bmm(spread(w.detach()), x), (_BATCH, _SIDE, _SIDE, 16), 0),
        (lambda w, x: spread(w).mT @ x, (_BATCH, _SIDE, _SIDE, 16), 0),
        (lambda w, x: torch.bmm(w.repeat(_BATCH, 1, 1), x), (_BATCH, _SIDE, _SIDE, 16), 0),
        (lambda w, x: torch.bmm(x.mT, spread(w)), (_BATCH, 16, _SIDE, _SIDE), 1),
        (lambda w, x: torch.baddbmm(torch.zeros(1), spread(w), x), (_BATCH, _SIDE, _SIDE, 16), 0),
    ],
)
def test_products_with_one_matrix_are_found(
    make: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], sizes: tuple[int, ...], position: int
) -> None:
    (found,) = look(make(leaf(_SIDE, _SIDE), leaf(_BATCH, _SIDE, 16)).sum())

    assert (found.form.kind, found.form.sizes, found.form.options) == ("product", sizes, (position,))


@pytest.mark.parametrize("name", ["slogdet", "inv", "cholesky"])
def test_factorizations_of_one_matrix_are_found(name: str) -> None:
    weight = (torch.eye(_SIDE) * 2).requires_grad_()
    made = getattr(torch.linalg, name)(spread(weight))

    (found,) = look((made[1] if isinstance(made, tuple) else made).sum())

    assert (found.form.kind, found.form.sizes, found.form.names) == ("factorization", (_BATCH, _SIDE), (name,))


@pytest.mark.parametrize(
    ("make", "lengths", "names", "is_padded"),
    [
        (lambda x: torch.fft.irfft(torch.fft.rfft(x, n=8191), n=8191), [8191, 8192], ("c2r", "r2c"), True),
        (lambda x: torch.fft.rfft(x[:, :4093]).abs(), [4093, 4096], ("r2c",), False),
        (lambda x: torch.fft.fft(x[:, :4093]).abs(), [4093, 4096], ("r2c_whole",), False),
    ],
)
def test_transforms_of_awkward_lengths_are_found(
    make: Callable[[torch.Tensor], torch.Tensor], lengths: list[int], names: Sequence[str], is_padded: bool
) -> None:
    found = look(make(leaf(4, 4096)).sum())

    assert sorted(each.form.names[0] for each in found) == list(names)
    for each in found:
        told = describe_found(each)
        assert (told["lengths"], told["is_padded"]) == (lengths, is_padded)
        assert all(took > 0 for took in time_form(torch, each.form))


def test_one_matrix_that_is_inverted_and_whose_determinant_is_taken_is_found() -> None:
    points = leaf(96, 96)
    kernel, rest = points @ points.mT + torch.eye(96), torch.ones(96)

    (found,) = look(rest @ torch.inverse(kernel) @ rest + torch.logdet(kernel))

    assert (found.form.kind, found.form.sizes, found.form.names) == ("factored_again", (1, 96, 1), ("inv", "slogdet"))
    assert found.copy is not None and found.copy.shape == (96, 96)
    assert len(found.lines) == 2


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        (lambda w: torch.inverse(w) @ torch.ones(96, 5), (1, 96, 5)),
        (lambda w: torch.inverse(w).mT @ torch.ones(96, 5), (1, 96, 5)),
        (lambda w: torch.inverse(w).sum() + torch.linalg.slogdet(w)[1], (1, 96, WHOLE)),
        (lambda w: torch.linalg.solve(w, torch.ones(96, 3)).sum() + torch.linalg.slogdet(w)[1], (1, 96, 3)),
    ],
)
def test_an_inverse_to_multiply_with_is_found(
    make: Callable[[torch.Tensor], torch.Tensor], sizes: tuple[int, ...]
) -> None:
    (found,) = look(make(leaf(96, 96)).sum())

    assert (found.form.kind, found.form.sizes) == ("factored_again", sizes)
    assert found.copy is None  # it is not symmetric


def test_a_convolution_behind_an_interpolation_is_found() -> None:
    images, weight = leaf(2, 16, 32, 32), leaf(8, 16, 1, 1)

    (found,) = look(F.conv2d(F.interpolate(images, scale_factor=2, mode="bilinear"), weight).sum())

    assert (found.form.kind, found.form.sizes) == ("enlarged", (2, 16, 32, 32, 64, 64, 8))


def chained(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [leaf(*shape) for shape in shapes]


_SQUARE, _THIN, _LEVEL = (500, 500), (500, 16), (64, 64)


@pytest.mark.parametrize(
    ("make", "shapes", "sizes", "orders"),
    [
        (lambda a, x: a @ a @ x, (_SQUARE, _THIN), (1, 500, 500, 500, 16), ((2, 1), (1, 2))),
        (lambda a, x: a @ a @ a @ x, (_SQUARE, _THIN), (1, 500, 500, 500, 500, 16), ((3, 2, 1), (1, 2, 3))),
        (lambda a, v: a @ a @ v, (_SQUARE, (500,)), (1, 500, 500, 500, 1), ((2, 1), (1, 2))),
        (lambda a, x: x.mT @ (a @ a), (_SQUARE, _THIN), (1, 16, 500, 500, 500), ((1, 2), (2, 1))),
        (lambda a, x: (a @ a.mT).T @ x, (_SQUARE, _THIN), (1, 500, 500, 500, 16), ((2, 1), (1, 2))),
        (lambda a, b, x: (a @ b).mT @ x, ((500, 400), (400, 300), _THIN), (1, 300, 400, 500, 16), ((2, 1), (1, 2))),
        (lambda a, x: a.detach() @ a @ x.detach(), (_SQUARE, _THIN), (1, 500, 500, 500, 16), ((2, 1), (1, 2))),
        (lambda q, k, v: q @ k.mT @ v, ((4, 90, 8),) * 3, (4, 90, 8, 90, 8), ((2, 1), (1, 2))),
        (lambda q, k, v: q @ k.mT @ v, ((2, 2, 90, 8),) * 3, (4, 90, 8, 90, 8), ((2, 1), (1, 2))),
        (lambda q, k, v: (k @ q.mT).mT @ v, ((4, 90, 8),) * 3, (4, 90, 8, 90, 8), ((2, 1), (1, 2))),
    ],
)
def test_products_in_a_dear_order_are_found(
    make: Callable[..., torch.Tensor],
    shapes: tuple[tuple[int, ...], ...],
    sizes: tuple[int, ...],
    orders: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    made = make(*chained(*shapes))

    (found,) = look(made.sum())

    assert (found.form.kind, found.form.sizes, found.form.options) == ("chain", sizes, orders[0] + orders[1])
    assert found.form.work == count_multiplications(sizes[1:], orders[0]) * sizes[0]


def test_a_chain_is_at_the_line_of_its_last_product() -> None:
    links, state = chained(_SQUARE, _THIN)
    once = links @ links
    last = once @ state

    (found,) = look(last.sum())

    assert last.grad_fn is not None and once.grad_fn is not None
    assert [line[0] for line in found.lines] == [last.grad_fn._sequence_nr(), once.grad_fn._sequence_nr()]
    assert found.form.needs == (True, True, True)


def test_a_product_that_is_needed_elsewhere_is_given() -> None:
    links, state = chained(_SQUARE, _THIN)
    twice = links @ links
    third = twice @ links

    (found,) = look((third @ state).sum() + twice.tanh().sum())

    assert found.form.sizes == (1, 500, 500, 500, 16)  # of two matrices and the state, not of three


def also_used(links: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    twice = links @ links
    return (twice @ state).sum() + twice.tanh().sum()


@pytest.mark.parametrize(
    ("make", "shapes"),
    [
        (lambda a, x: a @ (a @ x), (_SQUARE, _THIN)),
        (also_used, (_SQUARE, _THIN)),
        (lambda a, x: a @ a @ x, ((64, 64), (64, 200))),
        (lambda a, x: a @ a @ a, (_LEVEL, _LEVEL)),
        (lambda a, x: (a @ a).tanh() @ x, (_SQUARE, _THIN)),
        (lambda a, x: (a @ a).view(250, 1000).mT @ x[:250], (_SQUARE, _THIN)),
        (lambda a, x: (a @ a).t().reshape(250, 1000) @ torch.cat([x, x]), (_SQUARE, _THIN)),
        (lambda a, x: a.to_sparse() @ x @ x.mT[:, :8], (_SQUARE, _THIN)),
        (lambda a, x: a @ a @ x, ((8, 8), (8, 1))),
    ],
)
def test_chains_that_are_left_alone(make: Callable[..., torch.Tensor], shapes: tuple[tuple[int, ...], ...]) -> None:
    assert look(make(*chained(*shapes)).sum()) == []


@pytest.mark.parametrize(
    ("lengths", "order"), [((30, 35, 15, 5, 10, 20, 25), (3, 1, 2, 5, 4)), ((9, 1, 9), (1,)), ((5, 9, 9, 1), (1, 2))]
)
def test_the_cheapest_order(lengths: tuple[int, ...], order: tuple[int, ...]) -> None:
    assert cheapest_order(lengths) == order


def used_twice(images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    large = F.interpolate(images, scale_factor=2)
    return F.conv2d(large, weight).sum() + large.tanh().sum()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.bmm(leaf(_BATCH, _SIDE, _SIDE), leaf(_BATCH, _SIDE, 16)),
        lambda: leaf(_SIDE, _SIDE) @ leaf(_BATCH, _SIDE, 16),  # torch multiplies once
        lambda: torch.bmm(leaf(_BATCH, 1, _SIDE).expand(-1, _BATCH, -1), leaf(_BATCH, _SIDE, 16)),
        lambda: torch.linalg.slogdet(leaf(_BATCH, _SIDE, _SIDE))[1],
        lambda: torch.linalg.slogdet(leaf(96, 96))[1],
        lambda: torch.linalg.inv(leaf(96, 96)).tanh(),
        lambda: torch.linalg.solve(leaf(96, 96), torch.ones(96)),
        lambda: torch.fft.rfft(leaf(4, 4096)).abs(),
        lambda: torch.fft.rfft(leaf(4, 1400)).abs(),
        lambda: F.conv2d(F.interpolate(leaf(2, 16, 32, 32), scale_factor=2), leaf(8, 16, 3, 3)),
        lambda: F.conv2d(F.interpolate(leaf(2, 16, 32, 32), scale_factor=0.5), leaf(8, 16, 1, 1)),
        lambda: used_twice(leaf(2, 16, 32, 32), leaf(8, 16, 1, 1)),
    ],
)
def test_others_are_left_alone(make: Callable[[], torch.Tensor]) -> None:
    assert look(make().sum()) == []


_FORMS = (
    Form("product", (8, 5, 6, 3), ("expanded",), "float32", (True, True), (0,)),
    Form("product", (8, 5, 6, 3), ("repeated",), "float64", (True, False), (1,)),
    Form("factorization", (8, 6), ("slogdet",), "float32", (True,)),
    Form("factorization", (8, 6), ("inv",), "float64", (True,)),
    Form("factorization", (8, 6), ("qr",), "float32", (True,)),
    Form("enlarged", (2, 3, 4, 4, 8, 8, 5), ("nearest",), "float32", (True, True), (0,)),
    Form("enlarged", (2, 3, 4, 4, 8, 8, 5), ("bilinear",), "float32", (True, False), (0,)),
    Form("chain", (1, 12, 9, 10, 2), ("mm",), "float64", (True, True, True), (2, 1, 1, 2)),
    Form("chain", (3, 6, 6, 6, 6, 1), ("bmm",), "float32", (False, True, False, True), (2, 1, 3, 1, 2, 3)),
)


@pytest.mark.parametrize("form", _FORMS)
def test_that_both_forms_give_the_same(form: Form) -> None:
    now, other = (way.call(*way.inputs) for way in make_ways(torch, form))

    for one, same in zip(*(made if isinstance(made, tuple) else (made,) for made in (now, other)), strict=True):
        torch.testing.assert_close(one, same, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [3, WHOLE])
@pytest.mark.parametrize("is_definite", [True, False])
def test_that_one_factorization_serves_all(columns: int, is_definite: bool) -> None:
    form = Form("factored_again", (2, 12, columns), ("inv", "slogdet"), "float64", (True,))

    now, other = (way.call(*way.inputs) for way in make_ways(torch, form, torch.eye(12) if is_definite else None))

    assert sorted(float(made.sum()) for made in now) == pytest.approx(sorted(float(made.sum()) for made in other))


def test_timing_moves_nothing_of_the_script() -> None:
    before = torch.get_rng_state()
    with torch.no_grad():
        told = list(time_forms(torch, dict.fromkeys(_FORMS)))

    assert len(told) == 6  # and no more
    assert torch.equal(torch.get_rng_state(), before)
    assert all(min(each["ms"]) > 0 for each in told)  # type: ignore[type-var, arg-type]


def test_of_a_large_one_a_part_is_timed() -> None:
    form = Form("factorization", (4096, 64), ("slogdet",), "float32", (True,))

    now, other = make_ways(torch, form)

    assert now.times > 1 and other.times == 1


def test_of_a_large_chain_a_small_one_is_timed() -> None:
    form = Form("chain", (1, 4000, 4000, 4000, 1), ("mm",), "float32", (True, True, True), (2, 1, 1, 2))

    now, other = make_ways(torch, form)

    assert now.inputs[0].shape[0] < 1000
    assert now.times > other.times > 1  # a vector stays one


@pytest.mark.parametrize(("length", "other"), [(8191, 8192), (8192, 8192), (1009, 1024), (7, 8), (11, 12)])
def test_the_next_length_has_small_factors(length: int, other: int) -> None:
    assert next_length(length) == other
