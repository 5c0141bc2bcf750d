"""When a window is opened, and what is written down of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from flatout.attach.recorder import Output
from flatout.attach.tracer import OPTIMIZER_BEGINS, OPTIMIZER_ENDS, REQUEST_NO_GRAD, clock
from flatout.attach.watch.kernels import Profiler
from flatout.attach.watch.links import _MOST_WAITED, LinkWatch
from tests.unit.attach.contexts import make_context


class Texts(Output):
    def __init__(self) -> None:
        self.written: dict[str, list[Any]] = {}

    def text(self, what: str, value: object) -> None:
        self.written.setdefault(what, []).append(value)


class Training:
    """Steps of a small model, as the session tells a watcher of them."""

    def __init__(self, **settings: object) -> None:
        self.texts = Texts()
        self.context = make_context(lambda: self.texts)
        self.context.settings = settings
        self.watch = LinkWatch(self.context)
        self.index = 0
        self.weight = torch.ones(8, requires_grad=True)
        self.opened: list[int] = []

    def step(self, *more: int) -> None:
        loss = (self.weight * 2).sum()
        window = self.context.tracer.window
        if window is not None:
            self.opened.append(self.index)
            window.backward_begins(loss, False, False)
        loss.backward()
        if window is not None:
            window.backward_ends()
        self.watch.at_step_end([*more, OPTIMIZER_ENDS], self.index, clock())
        self.index += 1

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def end(self) -> dict[str, list[Any]]:
        self.watch.at_stop()
        self.watch.at_finish()
        return self.texts.written


@pytest.fixture(autouse=True)
def no_other_trace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("flatout.attach.watch.links.is_compiler_used", lambda: False)
    before = sys.gettrace()
    sys.settrace(None)
    yield
    assert sys.gettrace() is None
    sys.settrace(before)


def test_windows_come_after_the_first_steps_and_only_a_few() -> None:
    training = Training(window_budget=1.0)
    training.steps(40)
    # The next one is due when the run has lasted half as long again: a test cannot wait for that.
    assert training.opened == [9]

    (window,) = training.end()["window"]
    assert window["index"] == 9
    assert window["nodes"] == 2
    assert window["backward_ms"] > 0
    assert {line[2] for line in window["lines"] if line[7]} == {"step"}
    assert "window_missing" not in training.texts.written


def test_events_read_behind_an_inner_optimizer_are_read_up_to_the_last() -> None:
    """Three optimizers take turns, and the time to read comes during the long pass before the second one steps."""
    training = Training(window_budget=1.0)
    training.context.phases.leader = 1
    read_more, unread = False, []
    for index in range(40):
        for number in (1, 2, 3):
            (training.weight * 2).sum().backward()
            unread += [number << 5 | OPTIMIZER_BEGINS, OPTIMIZER_ENDS]
            if number == 2 or read_more:
                read_more = training.watch.at_step_end(unread, index, clock())
                unread = []
        if training.context.tracer.window is not None:
            break

    assert training.context.tracer.window is not None
    assert training.context.tracer.window.index == index + 1
    training.watch.at_stop()


def test_it_does_not_read_every_end_for_ever() -> None:
    training = Training(window_budget=1.0)
    training.context.phases.leader = 1
    asked = []
    for index in range(200):
        (training.weight * 2).sum()
        asked.append(training.watch.at_step_end([2 << 5 | OPTIMIZER_BEGINS], index, clock()))

    assert not training.context.tracer.window
    assert 0 < asked.count(True) <= _MOST_WAITED


def test_it_stays_within_its_budget() -> None:
    training = Training(window_budget=1e-9)
    training.steps(40)

    assert not training.opened
    assert training.end()["window_missing"] == [{"why": "run_too_short"}]


def test_what_it_costs_is_told() -> None:
    training = Training(window_budget=1.0)
    training.steps(12)

    assert training.watch.take_own_s() > 0
    assert training.watch.take_own_s() == 0
    training.end()


def test_a_step_with_an_evaluation_is_not_written_down() -> None:
    training = Training(window_budget=1.0)
    training.steps(9)
    training.step(REQUEST_NO_GRAD)

    assert training.end()["window_missing"] == [{"why": "evaluated"}]


def test_a_script_that_is_traced_is_left_alone() -> None:
    def debugger(frame: Any, event: str, arg: Any) -> None:
        return None

    training = Training(window_budget=1.0)
    sys.settrace(debugger)
    training.steps(12)
    assert sys.gettrace() is debugger
    sys.settrace(None)

    assert training.end() == {"window_missing": [{"why": "traced"}]}


def test_a_script_with_a_profiler_of_its_own_is_left_alone() -> None:
    training = Training(window_budget=1.0)
    with torch.autograd.profiler.profile():
        training.steps(12)

    assert training.end() == {"window_missing": [{"why": "profiled"}]}


def test_a_forked_child_goes_on_without_it() -> None:
    training = Training(window_budget=1.0)
    training.steps(9)
    assert sys.gettrace() is not None

    training.watch.at_fork()

    assert sys.gettrace() is None
    assert training.context.tracer.window is None


def test_a_failure_ends_the_windows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(window_budget=1.0)
    monkeypatch.setattr(LinkWatch, "_write", lambda *args: 1 / 0)
    training.steps(20)

    (missing,) = training.end()["window_missing"]
    assert missing["why"].startswith("failed: ZeroDivisionError")
    assert len(training.opened) == 1


def test_where_a_whole_window_is_too_dear_one_over_lines_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    # This process may be older than a run that is young.
    monkeypatch.setattr("flatout.attach.watch.links._LINES_FROM_S", 1e9)
    training = Training(window_budget=1.0)
    training.watch._dearest_s = 1e6
    training.steps(20)
    assert not training.opened, "the run is young, and nothing was tried"

    training.watch._misses = 1
    training.steps(20)
    assert len(training.opened) == 1

    # The next one is a whole one again, when the run has lasted long enough.
    assert training.watch._expect(1.0, 1e9) == (1e6, False)
    (window,) = training.end()["window"]
    assert window["without"] == ["calls", "nodes"]
    assert {line[2] for line in window["lines"] if line[7]} == {"step"}
    assert window["backward_ms"] > 0


def test_one_over_lines_that_was_too_dear_is_not_tried_again_for_as_little() -> None:
    training = Training(window_budget=1.0)
    training.watch._dearest_s, training.watch._misses = 1e6, 1
    while training.context.tracer.window is None:
        training.step()
    training.context.tracer.window._give_up("too_dear")
    limit_s = training.context.tracer.window.forward.limit_s
    training.step()

    expected_s, is_of_lines = training.watch._expect(1e-9, 1.0)
    assert is_of_lines
    assert expected_s >= 2.0 * limit_s
    training.end()


def test_no_window_opens_while_another_one_has_the_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Profiler, "_open", 1)
    training = Training(window_budget=1.0)
    training.steps(20)
    assert not training.opened

    monkeypatch.setattr(Profiler, "_open", 0)
    training.steps(20)
    assert training.opened
    training.end()
