"""Parts that are picked one by one from a tensor that requires a gradient, and others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from flatout.attach.watch.link_picks import PickedParts, Picks
from tests.unit.attach.watch.passes import nodes_of

_STEPS, _WIDTH = 40, 4096


def look(made: torch.Tensor, turn_of: Callable[[int], int] = lambda number: number) -> list[Picks]:
    """As a window does, over one backward pass."""
    nodes = nodes_of(made)
    parts = PickedParts()
    found = parts.find(nodes, lambda number: (1, 1, False), turn_of)
    assert sum(picks.count for picks in parts.seen) == len(found)
    return parts.seen


def selected(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x[:, t].tanh() for t in range(_STEPS)], 1)


def sliced(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[:, t : t + 2].tanh() for t in range(0, _STEPS, 2)], 1)


def of_a_result(x: torch.Tensor) -> torch.Tensor:
    return selected(x.square())


@pytest.mark.parametrize(("pick", "count"), [(selected, _STEPS), (sliced, _STEPS // 2), (of_a_result, _STEPS)])
def test_picks_of_one_tensor_are_counted(pick: Callable[[torch.Tensor], torch.Tensor], count: int) -> None:
    x = torch.randn(8, _STEPS, _WIDTH, requires_grad=True)

    (picks,) = look(pick(x))

    assert (picks.count, picks.elements, picks.picked) == (count, x.numel(), x.numel())


@pytest.mark.parametrize(
    "pick",
    [
        lambda x: torch.stack([part.tanh() for part in x.unbind(1)], 1),
        lambda x: x[:, 0] + x[:, 1] + x[:, 2],  # a few
        lambda x: torch.stack([part[:, 0] for part in x.split(4, 2)]),  # each from another tensor
        lambda x: selected(x[:, :, :8]),  # a small one
    ],
)
def test_others_are_not(pick: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert look(pick(torch.randn(8, _STEPS, _WIDTH, requires_grad=True))) == []


def test_a_single_turn_of_a_line_is_no_loop() -> None:
    rnn = torch.nn.GRU(_WIDTH, 64)
    x = torch.randn(_STEPS, 8, _WIDTH, requires_grad=True)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.arange(_STEPS, _STEPS - 16, -2))
    states, _ = torch.nn.utils.rnn.pad_packed_sequence(rnn(packed)[0])

    assert look(states, lambda number: 1) == []
    assert max(picks.count for picks in look(states)) >= _STEPS // 2
