"""Values of all pairs that are formed and summed, and what only looks like it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from flatout.attach.watch.link_pairs import FormedPairs, Pairs, PairSums, describe_pairs, time_pairs
from tests.unit.attach.watch.passes import nodes_of

_ROWS, _COLUMNS, _VALUES = 48, 160, 64

Make = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def look(made: torch.Tensor) -> list[FormedPairs]:
    """As a window does; the line of a node is its number."""
    nodes = nodes_of(made)
    sums = PairSums(torch)
    sums.find(nodes, lambda number: (number, 1, False), 10.0)
    return sums.seen


def rows_and_columns(seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(_ROWS, _VALUES, generator=generator).requires_grad_()
    return rows, torch.randn(_COLUMNS, _VALUES, generator=generator) * 3 + 1


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda a, b: (a.unsqueeze(1) - b.unsqueeze(0)).pow(2).sum(2), "difference"),
        (lambda a, b: ((a[:, None] - b) ** 2).mean(-1), "difference"),
        (lambda a, b: (a[:, None] - b).square().sum(-1, keepdim=True), "difference"),
        (lambda a, b: (a[:, None] - b).norm(dim=-1), "difference"),
        (lambda a, b: torch.linalg.vector_norm(b[:, None] - a, dim=2), "difference"),
        (lambda a, b: (a[:, None].expand(-1, _COLUMNS, -1) - b[None].repeat(_ROWS, 1, 1)).pow(2).sum(2), "difference"),
        (lambda a, b: (a.t()[:, :, None] - b.t()[:, None]).pow(2).sum(0), "difference"),
        (lambda a, b: (a[:, None] * b).sum(-1), "product"),
        (lambda a, b: (b[None] * a[:, None].expand(-1, _COLUMNS, -1)).mean(2), "product"),
    ],
)
def test_pairs_are_found_however_they_are_written(make: Make, kind: str) -> None:
    (formed,) = look(make(*rows_and_columns()).sum())

    pairs = formed.pairs
    assert (pairs.kind, pairs.sets, pairs.values) == (kind, 1, _VALUES)
    assert {pairs.rows, pairs.columns} == {_ROWS, _COLUMNS}
    assert len(formed.lines) >= 2  # one forms them, another sums


def test_both_may_need_a_gradient_and_be_several_sets() -> None:
    points = torch.randn(3, 40, 64, generator=torch.Generator().manual_seed(1)).requires_grad_()

    (formed,) = look((points[:, :, None] - points[:, None]).pow(2).sum(-1).sqrt().sum())

    assert formed.pairs == Pairs("difference", 3, 40, 40, 64)


def test_a_codebook_has_rows_of_several_dimensions() -> None:
    cells = torch.randn(2, 8, 6, 64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    book = torch.randn(128, 64, generator=torch.Generator().manual_seed(2))

    (formed,) = look((cells[..., None, :] - book).pow(2).sum(-1).sum())

    assert formed.pairs == Pairs("difference", 1, 2 * 8 * 6, 128, 64)


def of_others(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.randn(_ROWS, _COLUMNS, _VALUES, generator=torch.Generator().manual_seed(3)) + a[:, None]


def used_twice(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    apart = a[:, None] - b
    return apart.pow(2).sum(2).sum() + apart.tanh().sum()


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b: (of_others(a, b) - b).pow(2).sum(2),  # every pair has values of its own
        lambda a, b: (a[:, None] - b).tanh().pow(2).sum(2),
        lambda a, b: (a[:, None] - b).abs().pow(3).sum(2),
        lambda a, b: (a[:, None] - b).amax(2),
        lambda a, b: (a[:, None] - b).pow(2).sum((1, 2)),
        lambda a, b: (of_others(a, b) * b).sum(2),
        lambda a, b: (a[:, None] * b[:, :1]).sum(2),  # nothing is summed that both have
        lambda a, b: (a[:4, None] - b[:8]).pow(2).sum(2),  # a few
        lambda a, b: (a[:, :2] - b[0, :2]).pow(2).sum(1),
        lambda a, b: torch.cdist(a, b),
        lambda a, b: a @ b.t(),
        used_twice,
    ],
)
def test_others_are_left_alone(make: Make) -> None:
    assert look(make(*rows_and_columns()).sum()) == []


def test_that_both_ways_are_the_same_and_a_product_is_quicker() -> None:
    from flatout.attach.watch import link_pairs as ways

    left, right = (torch.randn(2, size, 16, generator=torch.Generator().manual_seed(size)) for size in (9, 7))
    given = torch.randn(2, 9, 7, generator=torch.Generator().manual_seed(1))
    for formed, multiplied in (
        (ways._form, ways._multiply),
        (ways._form_differences, ways._multiply_differences),
    ):
        for one, other in zip(formed(left, right, given), multiplied(left, right, given), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)

    before = torch.get_rng_state()
    took = time_pairs(torch, Pairs("difference", 1, 256, 1024, 64))
    assert took is not None and 0 < took[1] < took[0]
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "pairs",
    [
        Pairs("product", 1, 4096, 4096, 512),
        Pairs("difference", 64, 128, 128, 64),
        Pairs("difference", 1, 8, 100_000, 256),
    ],
)
def test_of_many_pairs_a_part_is_timed(pairs: Pairs) -> None:
    took = time_pairs(torch, pairs)

    assert took is not None and took[0] > 0
    assert describe_pairs(pairs) == [pairs.kind, pairs.sets, pairs.rows, pairs.columns, pairs.values]
