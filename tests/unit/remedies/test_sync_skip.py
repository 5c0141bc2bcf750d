"""`synchronize` in the step does not wait; what hangs on the wait still gets it."""

from __future__ import annotations

import pytest
import torch

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
