"""Lists that grow are found in variables and in objects of the script's own."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import torch

from flatout.attach.watch.link_holders import Holders, describe_holders


class History:
    def __init__(self) -> None:
        self.losses: list[Any] = []
        self.by_name: dict[str, list[Any]] = {"kept": []}


class Odd(list[Any]):
    def __len__(self) -> int:
        raise AssertionError("a method of the script's own was called")


def grow(history: History, notes: list[Any], odd: Odd, holders: Holders) -> None:
    """A step, looked at before and after."""
    weight = torch.ones(3, requires_grad=True)
    holders.look(sys._getframe())
    history.losses.append((weight * 2).sum())
    history.by_name["kept"].append(weight.detach())
    notes.append("text")
    holders.look_again()
    holders.look(sys._getframe())
    holders.forget_variables()


def test_lists_with_tensors_are_told_with_their_names() -> None:
    holders, history = Holders(torch), History()
    grow(history, [], Odd(), holders)

    told = describe_holders(holders, {}, 9)
    assert [(holder["name"], holder["has_graph"], holder["per_step"]) for holder in told] == [
        ("history.losses", True, 1.0),
        ("history.by_name[...]", False, 1.0),
    ]
    assert {holder["function"] for holder in told} == {"grow"}


def test_growth_is_since_the_window_before() -> None:
    history, before = History(), dict[int, tuple[str, int, int]]()
    first = Holders(torch)
    grow(history, [], Odd(), first)
    describe_holders(first, before, 9)
    history.losses += [history.losses[-1]] * 19
    again = Holders(torch)
    grow(history, [], Odd(), again)

    told = {holder["name"]: holder["per_step"] for holder in describe_holders(again, before, 19)}
    assert told == {"history.losses": 2.0}, "the other one grows far less than once a step"


def test_nothing_is_kept() -> None:
    holders, history = Holders(torch), History()
    grow(history, [], Odd(), holders)
    loss = weakref.ref(history.losses[0])
    del history
    gc.collect()

    assert loss() is None


def asks_for_its_variables(kept: list[Any], holders: Holders) -> dict[str, Any]:
    mine = locals()
    holders.look(sys._getframe())
    kept.append(torch.ones(2))
    holders.look_again()
    holders.look(sys._getframe())
    holders.forget_variables()
    return mine


def test_a_script_that_asks_for_its_variables_keeps_them() -> None:
    assert set(asks_for_its_variables([], Holders(torch))) == {"kept", "holders"}


def traced(holders: Holders, losses: list[Any]) -> tuple[float, Any]:
    total, weight = 0.0, torch.ones(3, requires_grad=True)
    for number in range(3):
        loss = (weight * number).sum()
        losses.append(loss)
        total += number
    reference = weakref.ref(loss)
    del loss
    losses.clear()
    return total, reference


def test_the_variables_of_a_traced_function_stay_as_they_are() -> None:
    holders = Holders(torch)

    def see(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code is traced.__code__ and event == "line":
            holders.look(frame)
            holders.look_again()
        return see

    before = sys.gettrace()
    sys.settrace(see)
    try:
        total, loss = traced(holders, [])
    finally:
        sys.settrace(before)

    assert total == 3.0
    assert loss() is None, "a tensor is kept"
