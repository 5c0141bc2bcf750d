"""Which calls of modules repeat others, also where results cannot be read, as on a GPU."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from flatout.attach.watch import link_calls
from flatout.attach.watch.link_calls import ModuleCalls

LINE = (1, 2, False)


@pytest.fixture(autouse=True, params=["read", "not read"])
def results(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "not read":
        monkeypatch.setattr(link_calls, "bytes_of", lambda leaf: None)


class Looked:
    def __init__(self) -> None:
        self.calls = ModuleCalls(torch, dict, {})

    def call(self, module: nn.Module, *args: Any) -> Any:
        self.calls.enter({"self": module, "args": args, "kwargs": {}}, LINE)
        result = module(*args)
        self.calls.leave(result)
        return result

    @property
    def repeats(self) -> int:
        return len(self.calls.finish())


class Keeping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.state = nn.Linear(4, 4), torch.zeros(2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state = self.layer(x) + 0.5 * self.state
        return self.state * 1.0


class Switched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self._is_on = nn.Linear(4, 4), True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if self._is_on else self.layer(-x)


class Iterating(nn.Module):
    """Of its own state alone, which has long stopped to change."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("state", torch.ones(4))

    def forward(self) -> torch.Tensor:
        self.state.mul_(1.0)
        return self.weight * self.state


def test_a_state_that_goes_on_with_each_call_is_no_repeat() -> None:
    looked, module = Looked(), Iterating()

    looked.call(module)
    looked.call(module)

    assert looked.repeats == 0


def test_the_same_again_is_a_repeat_and_so_is_what_follows_from_it() -> None:
    looked, first, second = Looked(), nn.Linear(4, 4), nn.Linear(4, 4)
    x = torch.ones(2, 4)
    kept = [looked.call(second, looked.call(first, x)) for _ in range(2)]

    assert len(kept) == 2 and looked.repeats == 2


def test_another_tensor_is_not_the_same_though_its_values_are() -> None:
    looked, module = Looked(), nn.Linear(4, 4)
    looked.call(module, torch.ones(2, 4))
    looked.call(module, torch.ones(2, 4))

    assert looked.repeats == 0


def test_nor_is_a_changed_one_or_one_with_changed_weights() -> None:
    looked, module, x = Looked(), nn.Linear(4, 4), torch.ones(2, 4)
    with torch.no_grad():
        looked.call(module, x)
        x.add_(1)
        looked.call(module, x)
        module.weight.add_(1)
        looked.call(module, x)

    assert looked.repeats == 0


def test_a_module_that_keeps_something_does_not_repeat_itself() -> None:
    looked, module, x = Looked(), Keeping(), torch.ones(2, 4)
    looked.call(module, x)
    looked.call(module, x)

    assert looked.repeats == 0


def test_nor_does_one_that_was_switched_over() -> None:
    looked, module, x = Looked(), Switched(), torch.ones(2, 4)
    looked.call(module, x)
    module._is_on = False
    looked.call(module, x)

    assert looked.repeats == 0


def test_other_random_numbers_are_no_repeat_if_nothing_is_trained() -> None:
    looked, x = Looked(), torch.ones(2, 64)
    module = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5))
    looked.call(module, x)
    looked.call(module, x)

    assert looked.repeats == 0


def test_without_a_graph_it_is_the_earlier_call_that_can_go() -> None:
    looked, module, x = Looked(), nn.Linear(4, 4), torch.ones(2, 4)
    with torch.no_grad():
        looked.call(module, x)
    looked.call(module, x)

    (found,) = looked.calls.finish()
    assert not found.has_grad


def test_no_tensor_and_no_module_is_kept() -> None:
    looked, module, x = Looked(), nn.Linear(4, 4), torch.ones(2, 4)
    references = [weakref.ref(thing) for thing in (looked.call(module, x), looked.call(module, x), module, x)]
    del module, x
    gc.collect()

    assert [reference() for reference in references] == [None] * 4


class Wrapper(torch.Tensor):
    """As a DTensor is: its values lie in other tensors."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError


def test_a_tensor_without_memory_of_its_own_cannot_be_read() -> None:
    wrapper = torch.Tensor._make_wrapper_subclass(Wrapper, (4,), dtype=torch.float32)  # type: ignore[attr-defined]

    assert link_calls.digest_of([wrapper], torch.Tensor) is None


# Inputs that grow.


def lengths_seen(looked: Looked) -> list[list[int]]:
    """Of each module that is called with longer and longer inputs, the lengths."""
    return [[length for _, length in series.calls] for series in looked.calls.growing.finish()]


def call_with(module: nn.Module, *shapes: tuple[int, ...]) -> list[list[int]]:
    looked = Looked()
    for shape in shapes:
        looked.call(module, torch.ones(shape))
    return lengths_seen(looked)


def test_an_input_that_grows_is_a_sequence_from_its_start() -> None:
    rnn, known = nn.GRU(4, 4, batch_first=True), torch.ones(2, 9, 4)
    looked = Looked()
    for length in range(1, 9):
        looked.call(rnn, known[:, :length])

    (series,) = looked.calls.growing.finish()
    assert [length for _, length in series.calls] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (series.rises[0].dimension, series.rises[0].is_known) == (1, True)


def test_what_is_written_on_the_way_was_not_known_before() -> None:
    rnn, buffer = nn.GRU(4, 4, batch_first=True), torch.ones(2, 9, 4)
    looked = Looked()
    for length in range(1, 9):
        looked.call(rnn, buffer[:, :length])
        buffer[:, length] = 2.0

    (series,) = looked.calls.growing.finish()
    assert (series.rises[0].is_one_tensor, series.rises[0].is_known) == (True, False)


def test_a_long_beginning_is_computed_again_as_well() -> None:
    shapes = [(1, length, 4) for length in range(20, 30)]

    assert call_with(nn.GRU(4, 4, batch_first=True), *shapes) == [[*range(20, 30)]]


def test_several_sequences_count_together() -> None:
    shapes = [(1, length, 4) for length in (*range(2, 10), *range(1, 9))]

    assert call_with(nn.GRU(4, 4, batch_first=True), *shapes) == [[*range(2, 10), *range(1, 9)]]


@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param([(1, length) for length in (3, 5, 6, 9, 12, 13, 17, 21)], id="as they come"),
        pytest.param([(1, length) for length in range(1, 7)], id="seldom"),
        pytest.param([(1, length) for length in range(40, 66, 2)], id="by little, in parts"),
        pytest.param([(1, length) for length in range(10, 0, -1)], id="shrinking"),
        pytest.param([(1, 8)] * 10, id="alike"),
        pytest.param([(1, 2**power) for power in range(8)], id="doubling"),
        pytest.param([(1, length) for length in range(8, 80, 8)], id="buckets of every size"),
        pytest.param([(length, length) for length in range(1, 10)], id="in two dimensions"),
        pytest.param([(1,) * length for length in range(1, 10)], id="in their number"),
    ],
)
def test_other_lengths_are_no_such_sequence(shapes: list[tuple[int, ...]]) -> None:
    class Summed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum() * self.factor

    assert call_with(Summed(), *shapes) == []


def test_in_larger_parts_it_takes_one_tensor_or_many_calls() -> None:
    rnn, known = nn.GRU(4, 4, batch_first=True), torch.ones(1, 40, 4)
    looked = Looked()
    for length in range(4, 40, 4):
        looked.call(rnn, known[:, :length])

    assert lengths_seen(looked) == [[*range(4, 40, 4)]]
    assert call_with(rnn, *[(1, length, 4) for length in range(3, 48, 3)]) == [[*range(3, 48, 3)]]


def test_a_pass_in_between_ends_a_sequence() -> None:
    looked, rnn = Looked(), nn.GRU(4, 4, batch_first=True)
    for length in range(1, 10):
        looked.call(rnn, torch.ones(1, length, 4))
        looked.calls.growing.settle()
        looked.calls.forget_open()

    assert lengths_seen(looked) == []


def test_of_modules_within_modules_the_outermost_is_told() -> None:
    inner = nn.GRU(4, 4, batch_first=True)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return looked.call(self.inner, x)[0]

    looked, outer = Looked(), Outer()
    for length in range(1, 9):
        looked.call(outer, torch.ones(1, length, 4))

    (series,) = looked.calls.growing.finish()
    assert series.module == "Outer"


def test_within_a_long_sequence_nothing_else_is_looked_at() -> None:
    looked, part = Looked(), nn.Linear(4, 4)
    rnn, known = nn.GRU(4, 4, batch_first=True), torch.ones(1, 12, 4)
    looked_at = []
    for length in range(1, 13):
        looked.calls.enter({"self": rnn, "args": (known[:, :length],), "kwargs": {}}, LINE)
        looked_at.append(
            looked.calls.enter({"self": part, "args": (torch.ones(2, 4),), "kwargs": {}}, LINE) is not None
        )
        looked.calls.leave(None)
        looked.calls.leave(None)

    assert looked_at == [True] * 6 + [False] * 6
    assert looked.calls.enter({"self": part, "args": (torch.ones(2, 4),), "kwargs": {}}, LINE) is not None


def test_it_is_seen_where_no_more_calls_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_calls, "_MOST_CALLS", 2)

    assert call_with(nn.GRU(4, 4, batch_first=True), *[(1, length, 4) for length in range(1, 9)]) == [[*range(1, 9)]]


def test_what_has_grown_behind_one_element_is_a_cache() -> None:
    looked = Looked()
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    for length in range(1, 10):
        new, seen = torch.ones(1, 1, 4), torch.ones(1, length, 4)
        looked.call(attention, new, seen, seen)

    assert lengths_seen(looked) == []


def test_nor_is_a_mask_the_input() -> None:
    looked, module = Looked(), nn.Linear(4, 4)
    for length in range(1, 10):
        given = {"attention_mask": torch.ones(1, length), "x": torch.ones(1, 4)}
        looked.calls.enter({"self": module, "args": (), "kwargs": given}, LINE)
        looked.calls.leave(module(given["x"]))

    assert lengths_seen(looked) == []


def test_nodes_and_time_are_those_of_the_calls() -> None:
    looked, rnn = Looked(), nn.GRU(4, 4, batch_first=True)
    for length in range(1, 9):
        looked.call(rnn, torch.ones(1, length, 4))
    growing = looked.calls.growing
    growing.settle()
    (series,) = growing.finish()
    for call, length in series.calls:
        call.forward_s = 0.002 + 0.001 * length

    assert all(growing.at(call.first) is growing.at(call.last - 1) is series for call, _ in series.calls)
    assert growing.at(next(series.calls)[0].first - 1) is None
    assert series.fixed_s == pytest.approx(0.002)


def test_no_growing_input_is_kept() -> None:
    looked, rnn = Looked(), nn.GRU(4, 4, batch_first=True)
    inputs = [torch.ones(1, length, 4) for length in range(1, 9)]
    for given in inputs:
        looked.call(rnn, given)
    references = [weakref.ref(thing) for thing in (*inputs, rnn)]
    del inputs, rnn, given
    gc.collect()

    assert [reference() for reference in references] == [None] * 9
