"""Which calls of a script's functions repeat an earlier one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

from flatout.attach.watch.link_calls import NOWHERE, REPEAT, UNHELD, Call, ModuleCalls
from flatout.attach.watch.link_functions import FunctionCalls

_WEIGHT = nn.Parameter(torch.randn(64, 64))
_LAYER = nn.Linear(64, 64)


@pytest.fixture(autouse=True)
def no_other_trace() -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


def look(step: Callable[[], Any]) -> list[str]:
    """The functions of this file that compute something again, each for as often as it does."""
    calls = ModuleCalls(torch, dict, {})
    functions = FunctionCalls(torch, calls)
    clock = 0.0

    def on_call(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal clock
        if frame.f_code.co_filename != __file__ or frame.f_code is step.__code__:
            return None
        clock += 0.001
        functions.enter(frame, NOWHERE, clock)
        return on_line

    def on_line(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal clock
        clock += 0.001
        if event == "return":
            functions.leave(arg, clock)
        return on_line

    sys.settrace(on_call)
    try:
        step()
    finally:
        sys.settrace(None)
    return [call.module for call in calls.found]


def squared(x: torch.Tensor) -> torch.Tensor:
    return (x @ _WEIGHT).square()


def scaled(x: torch.Tensor, by: float) -> dict[str, torch.Tensor]:
    return {"scaled": by * x * _WEIGHT}


def through(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer.weight @ x  # type: ignore[operator, no-any-return]


def dropped(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.dropout(x @ _WEIGHT)


def in_turn(x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield squared(x)


def both(x: torch.Tensor) -> torch.Tensor:
    return squared(x) + 1.0


_X = torch.randn(64, 64)


def again() -> None:
    squared(_X), squared(_X)


def again_with_more() -> None:
    scaled(_X, 2.0), scaled(_X, by=2.0)


def again_with_a_module() -> None:
    through(_LAYER, _X), through(_LAYER, _X)


def again_in_another() -> None:
    squared(_X), both(_X)


@pytest.mark.parametrize(
    ("step", "function"),
    [(again, "squared"), (again_with_more, "scaled"), (again_with_a_module, "through"), (again_in_another, "squared")],
)
def test_the_same_result_again_is_found(step: Callable[[], None], function: str) -> None:
    assert look(step) == [function]


def other_tensors() -> None:
    squared(_X), squared(_X + 1.0)


def other_numbers() -> None:
    scaled(_X, 2.0), scaled(_X, 3.0)


def changed_in_between() -> None:
    squared(_X)
    with torch.no_grad():
        _WEIGHT.mul_(1.5)
    squared(_X)


def changed_module() -> None:
    through(_LAYER, _X)
    with torch.no_grad():
        _LAYER.weight.mul_(1.5)
    through(_LAYER, _X)


def at_random() -> None:
    dropped(_X), dropped(_X)


def without_a_graph() -> None:
    with torch.no_grad():
        squared(_X), squared(_X)


def nothing_by_chance() -> None:
    scaled(torch.zeros(64, 64), 2.0), scaled(torch.zeros(64, 64), 2.0)


class Made(nn.Module):
    def __init__(self, x: torch.Tensor) -> None:
        self.early = x.sum().item()
        super().__init__()


def a_module_in_the_making() -> None:
    Made(_X), Made(_X)


def a_generator() -> None:
    for made in (in_turn(_X), in_turn(_X + 1.0)):
        list(made)


@pytest.mark.parametrize(
    "step",
    [
        other_tensors,
        other_numbers,
        changed_in_between,
        changed_module,
        at_random,
        without_a_graph,
        nothing_by_chance,
        a_module_in_the_making,
        a_generator,
    ],
)
def test_others_are_not(step: Callable[[], None]) -> None:
    assert look(step) == []


def test_a_function_that_began_before_is_left_alone() -> None:
    calls = ModuleCalls(torch, dict, {})
    functions = FunctionCalls(torch, calls)

    functions.leave(torch.ones(3, requires_grad=True), 1.0)

    assert calls.found == []


def test_after_a_step_of_the_optimizer_nothing_is_a_repeat() -> None:
    calls = ModuleCalls(torch, dict, {})
    functions = FunctionCalls(torch, calls)
    frame = sys._getframe()
    for is_after_step in (False, True):
        if is_after_step:
            functions.forget_known()
        functions.enter(frame, NOWHERE, 0.0)
        functions.leave(squared(_X), 1.0)

    assert calls.found == []


def repeat(first: int, last: int, forward_s: float, backward_s: float = 0.0, kind: str = REPEAT) -> Call:
    return Call(NOWHERE, "part", True, kind, first, last, forward_s=forward_s, backward_s=backward_s)


def test_of_a_call_and_one_within_it_the_outer_is_told_where_it_takes_more() -> None:
    calls = ModuleCalls(torch, dict, {})
    inner, outer = repeat(5, 8, 1.0), repeat(4, 20, 1.0, 1.5)
    calls.add(inner)
    calls.add(outer)

    assert calls.found == [outer]
    assert calls.at(6) is outer and calls.at(19) is outer and calls.at(3) is None


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        (repeat(5, 8, 1.0), repeat(4, 20, 1.1)),
        # What nobody trains is another cause.
        (repeat(5, 8, 1.0, kind=UNHELD), repeat(4, 20, 9.0)),
    ],
)
def test_else_the_inner_one_is(inner: Call, outer: Call) -> None:
    calls = ModuleCalls(torch, dict, {})
    calls.add(inner)
    calls.add(outer)

    assert calls.found == [inner]
    assert calls.at(6) is inner


def test_gradients_that_a_function_asks_for_are_part_of_what_it_takes() -> None:
    calls = ModuleCalls(torch, dict, {})
    functions = FunctionCalls(torch, calls)
    frame = sys._getframe()
    for begun in (0.0, 1.0):
        functions.enter(frame, NOWHERE, begun, 2 * begun)
        functions.leave(squared(_X), begun + 0.5, 2 * begun + 0.25)

    (call,) = calls.found
    assert (call.forward_s, call.backward_s) == (0.5, 0.25)
