"""A compiled model stays only if it is quicker, and not if it is compiled again and again."""

from __future__ import annotations

import pytest

from flatout.remedies.compute import worth as compile_worth
from flatout.remedies.compute.worth import CompileWorth
from flatout.remedies.site import Site
from tests.unit.remedies.applied import reason, site_for


class Run:
    """Steps of known length, on a clock of its own."""

    def __init__(self, compiled_s: float) -> None:
        self.site: Site = site_for("compile.model", "default")
        self.compiled_s = compiled_s
        self.is_compiled = False
        self.now = 0.0
        self.compilations = 0
        self.steps = 0
        self.worth = CompileWorth(self.site, self._begin, on_device=False, clock=lambda: self.now)

    def _begin(self) -> None:
        self.is_compiled = True

    def take(self, steps: int, length_s: float | None = None) -> None:
        for _ in range(steps):
            self.steps += 1
            if self.is_compiled and self.compilations == 0:
                self.compilations, self.now = 1, self.now + 30.0
            self.now += length_s or (self.compiled_s if self.is_compiled else 0.1)
            if self.site.in_force:
                self.worth.step(self.steps)


def _run(monkeypatch: pytest.MonkeyPatch, compiled_s: float) -> Run:
    run = Run(compiled_s)
    monkeypatch.setattr(compile_worth, "compilations", lambda: run.compilations)
    return run


def test_twenty_steps_are_timed_before_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(monkeypatch, 0.05)

    run.take(25)
    assert not run.is_compiled
    run.take(1)

    assert run.is_compiled


def test_a_quicker_one_stays_and_says_when_it_is_paid_back(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(monkeypatch, 0.05)

    run.take(100)

    assert run.site.in_force
    assert run.site.live["step_ms_before"] == pytest.approx(100)
    assert run.site.live["step_ms_after"] == pytest.approx(50)
    assert run.site.live["compile_s"] == pytest.approx(30)
    assert run.site.live["paid_back_after_steps"] == 600


def test_a_slower_one_is_undone_after_a_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(monkeypatch, 0.12)

    run.take(120)

    assert run.site.state == "reverted"
    assert reason(run.site) == "a step takes 120 ms compiled and 100 ms without"


def test_a_pause_in_one_block_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(monkeypatch, 0.05)

    run.take(38)
    run.take(1, length_s=60.0)
    run.take(60)

    assert run.site.in_force and run.site.live["step_ms_after"] == pytest.approx(50)


def test_one_that_never_settles_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(monkeypatch, 0.05)

    for _ in range(140):
        run.take(1)
        run.compilations += run.is_compiled

    assert run.site.state == "reverted" and "still compiling after 100 steps" in reason(run.site)


def test_a_storm_later_on_is_the_end_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(monkeypatch, 0.05)
    run.take(100)

    run.compilations += 8
    run.take(100)
    assert run.site.in_force and run.site.live["recompiled"] == 8
    run.compilations += 1
    run.take(100)

    assert run.site.state == "reverted" and "compiled 9 times more" in reason(run.site)
