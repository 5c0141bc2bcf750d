"""`synchronize` in the step does not wait; what hangs on the wait still gets it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flatout.remedies.sync.defer import DeferredCalls, LoggerCall
from tests.unit.remedies.applied import applied


class _Event:
    """As torch's: the time between two is known once the device has come by both."""

    def __init__(self) -> None:
        self.is_reached = False

    def synchronize(self) -> None:
        self.is_reached = True

    def elapsed_time(self, end_event: _Event) -> float:
        if not (self.is_reached and end_event.is_reached):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return 1.5


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> list[_Event]:
    """Torch as if it had one; the events that `synchronize` waits for."""
    under_way: list[_Event] = []

    def synchronize() -> None:
        for event in under_way:
            event.synchronize()

    monkeypatch.setattr(torch.version, "cuda", "12.0")
    monkeypatch.setattr(torch.cuda, "Event", _Event)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return under_way


def test_a_script_that_times_with_events_gets_its_times(device: list[_Event]) -> None:
    times = []

    with applied("sync.skip") as site:
        for step in range(1, 5):
            site.stepped(step)
            start, end = _Event(), _Event()
            device[:] = [start, end]
            torch.cuda.synchronize()
            was_skipped = not end.is_reached
            times.append(start.elapsed_time(end))

        assert was_skipped and site.in_force and site.live == {"skipped_from_step": 1}
    assert times == [1.5] * 4


@pytest.mark.parametrize("step", [0, 100, 200])
def test_before_the_first_step_and_now_and_then_it_waits(step: int, device: list[_Event]) -> None:
    device.append(_Event())

    with applied("sync.skip") as site:
        if step:
            site.stepped(step)
        torch.cuda.synchronize()

    assert device[0].is_reached


def test_without_gradients_it_waits(device: list[_Event]) -> None:
    device.append(_Event())

    with applied("sync.skip") as site, torch.no_grad():
        site.stepped(3)
        torch.cuda.synchronize()

    assert device[0].is_reached


# Calls of a logger that wait for the device: same calls, same order, whatever comes in between. There is no device
# here: results stand in for device tensors, and arrive when the test says so. The real ones are in tests/gpu.


class Result:
    """Looks like a tensor of one element on a device; its value can be read once its event has happened."""

    is_cuda = True
    shape, dtype, device = (), "float32", "cuda:0"

    def __init__(self, value: float, elements: int = 1) -> None:
        self.value = value
        self._elements = elements

    def numel(self) -> int:
        return self._elements

    def detach(self) -> Result:
        return self


class Pinned:
    def copy_(self, source: Result, non_blocking: bool) -> Pinned:
        assert non_blocking
        self.value = source.value
        return self


class Event:
    arrived = False

    def record(self, stream: object) -> None: ...

    def query(self) -> bool:
        return Event.arrived

    def synchronize(self) -> None: ...


@pytest.fixture
def calls() -> DeferredCalls:
    Event.arrived = False
    cuda = SimpleNamespace(Event=Event, current_stream=lambda device: None, is_current_stream_capturing=lambda: False)
    return DeferredCalls(SimpleNamespace(cuda=cuda, empty=lambda shape, dtype, pin_memory: Pinned()))


class Writer:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def log(self, name: str, value: Any, step: int, walltime: float | None = None) -> None:
        value = {key: getattr(one, "value", one) for key, one in value.items()} if type(value) is dict else value
        self.calls.append((name, getattr(value, "value", value), step))


def _give(calls: DeferredCalls, writer: Writer, name: str, value: Any, step: int) -> bool:
    return calls.takes("add_scalar", LoggerCall(writer, Writer.log, (name, value, step), {}, step))


def test_a_result_is_handed_on_after_the_next_step_when_it_is_there(calls: DeferredCalls) -> None:
    writer = Writer()

    assert _give(calls, writer, "loss", Result(0.5), 1)
    calls.hand_on(1)
    calls.hand_on(2)
    assert writer.calls == []
    Event.arrived = True
    calls.hand_on(3)

    assert writer.calls == [("loss", 0.5, 1)]


def test_what_is_logged_after_it_waits_its_turn(calls: DeferredCalls) -> None:
    writer, other = Writer(), Writer()

    assert _give(calls, writer, "loss", {"a": Result(0.5), "b": 2}, 1)
    assert _give(calls, writer, "rate", 0.1, 1)
    assert not _give(calls, other, "rate", 0.1, 1), "nothing of this writer is under way"
    calls.hand_on_all()

    assert writer.calls == [("loss", {"a": 0.5, "b": 2}, 1), ("rate", 0.1, 1)]


def test_what_could_change_meanwhile_is_not_taken(calls: DeferredCalls) -> None:
    writer = Writer()

    assert _give(calls, writer, "loss", Result(0.5), 1)
    assert not _give(calls, writer, "image", bytearray(3), 1)
    assert not _give(calls, writer, "whole", Result(0.5, elements=10), 1)
    assert not _give(calls, writer, "plain", 3.0, 1) or writer.calls == []
    calls.hand_on_all(writer)

    assert writer.calls[0] == ("loss", 0.5, 1)


def test_the_scripts_dict_may_change_after_the_call(calls: DeferredCalls) -> None:
    writer, values = Writer(), {"a": Result(0.5)}

    assert _give(calls, writer, "losses", values, 1)
    values["a"] = Result(9.0)
    values.clear()
    calls.hand_on_all()

    assert writer.calls == [("losses", {"a": 0.5}, 1)]


def test_a_value_that_takes_too_long_is_waited_for(calls: DeferredCalls) -> None:
    writer = Writer()
    assert _give(calls, writer, "loss", Result(0.5), 1)

    for step in range(2, 30):
        calls.hand_on(step)

    assert writer.calls == [("loss", 0.5, 1)]


def test_the_time_of_day_is_that_of_the_call(calls: DeferredCalls) -> None:
    given: list[Any] = []
    writer = Writer()

    def log(*_: Any, **more: Any) -> None:
        given.append(more)

    assert calls.takes("add_scalar", LoggerCall(writer, log, ("a", Result(1)), {}, 1))
    assert calls.takes("set_postfix", LoggerCall(writer, log, (), {"a": Result(1)}, 1))
    calls.hand_on_all()

    assert given[0].keys() == {"walltime"} and given[1].keys() == {"a"}
