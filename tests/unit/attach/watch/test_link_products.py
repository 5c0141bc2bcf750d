"""The heaviest operations of a pass: what of their results is not read, and which factors are nearly empty."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from flatout.attach.watch.link_products import Factor, Operation, Operations, time_sparse
from tests.unit.attach.watch.passes import nodes_of

_TOKENS, _WIDTH, _WORDS = 64, 32, 512


def look(loss: torch.Tensor) -> list[Operation]:
    """As a window does, over one backward pass."""
    operations = Operations(torch)
    nodes = nodes_of(loss)
    for node, operation in operations.find(nodes, lambda number: (1, 1, False), 1.0):
        node.register_prehook(lambda gradients, operation=operation: operations.read_gradient(operation, gradients))
    loss.backward()
    return operations.seen


def masked_loss(scores: torch.Tensor) -> torch.Tensor:
    labels = torch.full((_TOKENS,), -100)
    labels[:8] = 1
    return F.cross_entropy(scores, labels, ignore_index=-100)


def picked_loss(scores: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores[:8], torch.ones(8, dtype=torch.long))


def weighed_loss(scores: torch.Tensor) -> torch.Tensor:
    weights = torch.zeros(_TOKENS, 1)
    weights[:8] = 1.0
    return (weights * scores).square().sum()


@pytest.mark.parametrize("loss", [masked_loss, picked_loss, weighed_loss])
def test_rows_that_the_loss_does_not_read_are_counted(loss: Callable[[torch.Tensor], torch.Tensor]) -> None:
    seen = look(loss(nn.Linear(_WIDTH, _WORDS)(torch.randn(_TOKENS, _WIDTH))))

    product = max(seen, key=lambda operation: operation.operations)
    assert product.operations == _TOKENS * _WIDTH * _WORDS
    assert product.unread == pytest.approx(1 - 8 / _TOKENS)


@pytest.mark.parametrize(
    "loss",
    [
        lambda scores: scores.square().mean(),
        lambda scores: scores.relu().sum(),  # half of the values, and no row
        # Which rows count is known only when all have been computed.
        lambda scores: scores.amax(0).sum(),
        lambda scores: scores.mean(1).topk(8).values.sum(),
        lambda scores: (scores.mean(1) - 1.0).relu().sum(),
    ],
)
def test_what_is_read_or_chosen_by_its_values_is_left_alone(loss: Callable[[torch.Tensor], torch.Tensor]) -> None:
    seen = look(loss(nn.Linear(_WIDTH, _WORDS)(torch.randn(_TOKENS, _WIDTH))))

    assert {operation.unread or 0.0 for operation in seen} == {0.0}


def test_a_row_of_a_convolution_is_a_place_of_its_result() -> None:
    image = nn.Conv2d(3, 32, 3, padding=1)(torch.randn(2, 3, 16, 16))

    (seen,) = look(image[:, :, :4].square().sum())

    assert seen.unread == pytest.approx(0.75)


def test_a_nearly_empty_factor_without_a_gradient_is_told() -> None:
    adjacency = torch.zeros(400, 400)
    adjacency[torch.arange(400), torch.arange(400).flip(0)] = 1.0
    rows = nn.Linear(32, 32)(torch.randn(400, 32))

    seen = look((adjacency @ rows).square().sum())

    (factor,) = [operation.factor for operation in seen if operation.operations == 400 * 400 * 32]
    assert factor == Factor((400, 400, 32), 1 / 400)


def test_a_state_of_zeros_is_no_sparse_matrix() -> None:
    weight = nn.Parameter(torch.randn(128, 128))

    seen = look((torch.zeros(64, 128) @ weight).square().sum() + weight.sum())

    assert [operation.factor for operation in seen] == [None]


def test_what_another_layer_made_is_no_such_factor() -> None:
    hidden = F.dropout(nn.Linear(32, 256)(torch.randn(64, 32)), 0.99)

    seen = look(nn.Linear(256, 256)(hidden).square().sum())

    assert [operation.factor for operation in seen if operation.operations == 64 * 256 * 256] == [None]


def test_the_random_numbers_of_the_script_do_not_move() -> None:
    before = torch.get_rng_state()

    time_sparse(torch, Factor((100, 100, 10), 0.02))

    assert torch.equal(before, torch.get_rng_state())


def test_a_product_that_is_too_large_is_not_timed() -> None:
    assert time_sparse(torch, Factor((1 << 16, 1 << 16, 8), 0.001)) is None


@pytest.mark.timing
def test_half_empty_is_not_worth_it_and_nearly_empty_is() -> None:
    dense_ms, sparse_ms = time_sparse(torch, Factor((1500, 1500, 32), 0.002)) or (0.0, 1.0)
    assert sparse_ms < dense_ms / 2
    dense_ms, sparse_ms = time_sparse(torch, Factor((1500, 1500, 32), 0.5)) or (1.0, 0.0)
    assert sparse_ms > dense_ms / 2


def test_no_tensor_is_kept() -> None:
    seen = look(masked_loss(nn.Linear(_WIDTH, _WORDS)(torch.randn(_TOKENS, _WIDTH))))

    names = [name for operation in seen for name in operation.__slots__]
    assert not any(isinstance(getattr(operation, name), torch.Tensor) for operation in seen for name in names if name)


def test_one_score_of_a_row_that_is_read_makes_the_row_read() -> None:
    scores = nn.Linear(_WIDTH, 4 * _WORDS)(torch.randn(_TOKENS, _WIDTH))

    seen = look(F.nll_loss(scores.log_softmax(-1), torch.arange(_TOKENS)) + scores[:, 7].sum())

    assert {operation.unread for operation in seen} == {0.0}
