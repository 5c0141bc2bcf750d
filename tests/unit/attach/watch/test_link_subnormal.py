"""What the heaviest operations are given: numbers that a processor may compute slowly, and what they take."""

from __future__ import annotations

from time import perf_counter

import pytest
import torch
from torch import nn

from flatout.attach.watch.link_subnormal import Given, Subnormal, find_subnormal, time_subnormal

_TINY = 1e-40


def find(made: torch.Tensor, name: str) -> Subnormal | None:
    """In the first node of this name, from the result on."""
    node = made.grad_fn
    while node is not None and node.name() != name:
        node = node.next_functions[0][0]
    assert node is not None
    return find_subnormal(torch, node, lambda tensor: tensor.is_cpu)


def fading(*shape: int) -> torch.Tensor:
    values = torch.randn(*shape)
    values[..., : shape[-1] // 4] = _TINY
    return values


def test_a_fading_input_of_a_layer_is_seen() -> None:
    found = find(nn.Linear(512, 48)(fading(64, 512)), "AddmmBackward0")

    assert found is not None
    assert found.given == Given((64, 512), (512, 48))
    assert found.share == pytest.approx(0.25, rel=0.05)


def test_a_fading_weight_is_seen() -> None:
    weight = nn.Parameter(fading(48, 512))
    rows = torch.randn(64, 512, requires_grad=True)

    found = find(rows @ weight.t(), "MmBackward0")

    assert found is not None
    assert found.given == Given((48, 512), (512, 64))


def test_a_fading_input_of_a_convolution_is_seen() -> None:
    layer = nn.Conv1d(3, 8, 5, stride=2, padding=2)

    found = find(layer(fading(4, 3, 256)), "ConvolutionBackward0")

    assert found is not None
    assert found.given == Given((4, 3, 256), (8, 3, 5), ((2,), (2,), (1,), False, (0,), 1))
    assert found.share == pytest.approx(0.25, rel=0.05)


@pytest.mark.parametrize("values", [torch.randn(64, 512), torch.zeros(64, 512), torch.full((64, 512), 2e-38)])
def test_ordinary_numbers_and_zeros_are_none(values: torch.Tensor) -> None:
    assert find(nn.Linear(512, 48)(values), "AddmmBackward0") is None


def test_float64_has_room_for_them() -> None:
    assert find(nn.Linear(512, 48).double()(fading(64, 512).double()), "AddmmBackward0") is None


@pytest.mark.parametrize(
    ("layer", "values", "name"),
    [
        (nn.Linear(4096, 256), fading(256, 4096), "AddmmBackward0"),
        (nn.Conv2d(4, 16, 3, padding=1), fading(16, 4, 64, 64), "ConvolutionBackward0"),
        (nn.ConvTranspose2d(4, 8, 4, stride=2), fading(16, 4, 32, 32), "ConvolutionBackward0"),
    ],
)
def test_what_they_take_is_timed_with_these_values(layer: nn.Module, values: torch.Tensor, name: str) -> None:
    found = find(layer(values), name)
    assert found is not None
    before = torch.get_rng_state()

    took = time_subnormal(torch, found)

    assert torch.equal(before, torch.get_rng_state())
    assert took is not None
    slow_ms, quick_ms = took
    if _is_slow_here():
        assert slow_ms > 1.5 * quick_ms > 0
    else:
        assert slow_ms > 0 and quick_ms > 0


def test_a_part_of_many_rows_is_kept() -> None:
    found = find(nn.Linear(512, 8)(fading(4096, 512)), "AddmmBackward0")

    assert found is not None
    assert len(found.rows) <= 256
    assert float((found.rows.abs() < 1e-38).float().mean()) == pytest.approx(0.25, rel=0.01)


def test_no_more_is_timed_than_the_end_of_a_process_may_take() -> None:
    many = Given((64, 512), (512, 20_000))

    found = find(nn.Linear(512, 20_000, bias=False)(fading(64, 512)), "MmBackward0")

    assert many.operations == 64 * 512 * 20_000
    assert found is not None and found.rows is None, "what it is multiplied with is too large"
    found = find(nn.Linear(512, 4000)(fading(256, 512)), "AddmmBackward0")
    assert found is not None
    assert 0 < len(found.rows) * 512 * 4000 <= 5e7


@pytest.mark.parametrize(
    ("given", "operations"),
    [
        (Given((8, 3, 10, 10), (16, 3, 3, 3), ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)), 8 * 3 * 100 * 16 * 9),
        (Given((8, 3, 10, 10), (3, 16, 4, 4), ((2, 2), (1, 1), (1, 1), True, (0, 0), 1)), 8 * 3 * 100 * 16 * 16),
    ],
)
def test_operations_of_a_convolution(given: Given, operations: float) -> None:
    assert given.operations == operations


def test_a_row_that_is_too_large_is_not_timed() -> None:
    found = find(nn.Conv1d(1, 2, 3)(fading(2, 1, 1 << 18)), "ConvolutionBackward0")

    assert found is not None and found.rows is None
    assert time_subnormal(torch, found) is None


def _is_slow_here() -> bool:
    """Does this processor leave its quick path? Measured by a product of such numbers alone."""
    took = []
    for value in (_TINY, 0.0):
        rows, other = torch.full((128, 2048), value), torch.full((2048, 128), 0.1)
        torch.mm(rows, other)
        begun = perf_counter()
        torch.mm(rows, other)
        took.append(perf_counter() - begun)
    return took[0] > 10 * took[1]
