"""The search on a machine that is known: what each remedy gains there is given, and the search has to find it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flatout.app.fixing.bench import Bench, Settings
from flatout.app.fixing.proof import concluded, confirm, holds
from flatout.app.fixing.search import Search
from flatout.app.plan import Wishes
from flatout.errors import FlatoutError
from flatout.problems.cases import run
from flatout.problems.catalogue import problems
from flatout.records.fix import Fix
from flatout.records.report import Finding, Gain, Location, RemedyState, RunReport
from flatout.records.trial import Trial
from flatout.remedies.catalogue import known
from flatout.trials.request import Request

_STEP_S = 0.1
Truth = Callable[[Mapping[str, Any]], float]


class Machine:
    """Makes trials without running anything: `seconds` says what a step takes under a profile."""

    def __init__(self, seconds: Truth, ceiling_s: float = 0.001, noise: float = 0.01) -> None:
        self._seconds = seconds
        self._ceiling_s = ceiling_s
        self._noise = noise
        self._draw = np.random.default_rng(7)
        self.refused: dict[str, str] = {}
        self.changed: set[str] = set()
        self.fails: set[str] = set()
        self.asked: list[Request] = []
        self.looks: dict[str, RunReport] = {}

    def __call__(self, request: Request) -> Trial:
        self.asked.append(request)
        if set(request.remedies) & self.fails:
            return Trial(request.arm, dict(request.remedies), "crashed", "RuntimeError: broken")
        mean_s = self._ceiling_s if request.replays else self._seconds(request.remedies)
        count = request.steps - request.warm_up
        step_s = mean_s * np.exp(self._draw.normal(0, 0.05, count) + self._draw.normal(0, self._noise))
        other = len(self.changed & set(request.remedies))
        remedies = known()
        return Trial(
            request.arm,
            dict(request.remedies),
            "stopped",
            step_s=tuple(step_s.tolist()),
            samples=(8.0,) * count,
            losses=tuple(2.0 / (1 + step) + other + 1e-7 * request.nudged for step in range(request.steps)),
            weights=f"{request.steps} {other}",
            steps=request.steps,
            states=tuple(
                RemedyState(name, remedies[name].safety, value, *self._state(name), step=1)
                for name, value in request.remedies.items()
            ),
            wall_s=float(step_s.sum()) + 2.0,
            run=",".join(sorted(request.remedies)),
        )

    def _state(self, name: str) -> tuple[str, str]:
        return ("refused", self.refused[name]) if name in self.refused else ("applied", "")

    def report(self, trial: Trial) -> RunReport:
        return self.looks.get(trial.run, run().report)


def found(*remedies: str, gain: float = 1.5, **evidence: int) -> RunReport:
    """A run with one finding for each remedy."""
    codes = {one.remedy: one for one in problems() if one.remedy}
    here, predicted = Location("train.py", 7), Gain(gain, gain, gain, "given")
    return replace(
        run().report,
        findings=tuple(
            Finding(
                codes[name].code, "x", codes[name].title, "high", here, dict(evidence), "why", name, None, predicted
            )
            for name in remedies
        ),
    )


def fixed(machine: Machine, look: RunReport, budget_s: float = 600.0, **wishes: tuple[str, ...]) -> Fix:
    machine.looks.setdefault("", look)
    bench = Bench(Settings(("train.py",), Wishes(**wishes), budget_s), machine)
    search = Search(bench, machine.report)
    report = search.look()
    search.run(report)
    if search.found.profile:
        confirm(bench, search.found.profile)
        if not holds(bench, search.found.profile):
            search.withdraw("it did not hold")
    return concluded(bench, search, report)


def states(fix: Fix) -> dict[str, str]:
    return {f"{one.planned.id}={one.planned.value}": one.state for one in fix.tried}


def test_what_helps_is_kept_what_does_not_is_undone() -> None:
    gains = {"loader.prefetch": 1.6, "gc.defer": 1.0, "sync.skip": 0.5}
    machine = Machine(lambda profile: _STEP_S / float(np.prod([gains[name] for name in profile])))

    fix = fixed(machine, found(*gains))

    assert fix.profile == {"loader.prefetch": 4}
    assert states(fix) == {"loader.prefetch=4": "kept", "gc.defer=True": "neutral", "sync.skip=True": "harmful"}
    assert fix.gain is not None and fix.gain.low < 1.6 < fix.gain.high
    assert fix.quality.identity is not None and fix.quality.identity.verdict == "identical"
    assert fix.hours_before is not None and fix.hours_before.mid == pytest.approx(100_000 * _STEP_S / 3600, rel=0.1)


def test_workers_are_doubled_as_long_as_that_helps() -> None:
    def seconds(profile: Mapping[str, Any]) -> float:
        workers = profile.get("loader.workers", 1)
        return _STEP_S / (1.5 if workers == "auto" else min(4, workers))

    fix = fixed(Machine(seconds), found("loader.workers", workers=2))

    assert fix.profile == {"loader.workers": 4}
    assert states(fix) == {
        "loader.workers=2": "outdone",
        "loader.workers=auto": "harmful",
        "loader.workers=4": "kept",
        "loader.workers=8": "neutral",
    }


def test_workers_tuned_while_they_run_are_kept_if_they_are_better() -> None:
    def seconds(profile: Mapping[str, Any]) -> float:
        return _STEP_S / (3.0 if profile.get("loader.workers") == "auto" else 1.0)

    fix = fixed(Machine(seconds), found("loader.workers", workers=2))

    assert fix.profile == {"loader.workers": "auto"}
    assert states(fix) == {"loader.workers=2": "neutral", "loader.workers=auto": "kept"}


def test_it_looks_again_under_what_was_kept() -> None:
    def seconds(profile: Mapping[str, Any]) -> float:
        fed_s = 0.001 if "loader.prefetch" in profile else _STEP_S
        return max(fed_s, 0.02 / (1.5 if "gc.defer" in profile else 1.0))

    machine = Machine(seconds)
    machine.looks["loader.prefetch"] = found("gc.defer")

    fix = fixed(machine, found("loader.prefetch"))

    assert set(fix.profile) == {"loader.prefetch", "gc.defer"}


def test_it_ends_at_the_ceiling() -> None:
    machine = Machine(lambda profile: 0.02 if profile else _STEP_S, ceiling_s=0.0198)
    machine.looks["loader.prefetch"] = found("gc.defer")

    fix = fixed(machine, found("loader.prefetch"))

    assert set(fix.profile) == {"loader.prefetch"}
    assert "ceiling" in fix.ended
    assert fix.ceiling is not None and fix.ceiling.enough


def test_pinning_and_copies_are_tried_together() -> None:
    both = {"loader.pin", "transfer.async"}
    machine = Machine(lambda profile: _STEP_S / (1.5 if both <= set(profile) else 1.0))

    assert both <= set(fixed(machine, found(*both)).profile)


def test_what_is_lossless_must_change_nothing() -> None:
    machine = Machine(lambda profile: _STEP_S / (3.0 if profile else 1.0))
    machine.changed = {"gc.defer"}

    fix = fixed(machine, found("gc.defer"))

    assert fix.profile == {}
    assert states(fix) == {"gc.defer=True": "failed"}
    assert "first differs at step 1" in fix.tried[0].why


def test_a_loss_outside_the_envelope_undoes_a_numeric_one() -> None:
    machine = Machine(lambda profile: _STEP_S / (3.0 if profile else 1.0))
    machine.changed = {"precision.tf32"}

    fix = fixed(machine, found("precision.tf32"), allow=("numeric",), only=("precision.tf32",))

    assert fix.profile == {}
    assert states(fix) == {"precision.tf32=True": "failed"}


def test_a_numeric_one_is_tried_only_where_that_is_allowed() -> None:
    def seconds(profile: Mapping[str, Any]) -> float:
        return _STEP_S / (2.0 if profile else 1.0)

    refused = fixed(Machine(seconds), found("precision.tf32"))
    allowed = fixed(Machine(seconds), found("precision.tf32"), allow=("numeric",), without=("precision.bf16",))

    assert refused.profile == {} and not refused.tried
    assert any(one.id == "precision.tf32" and "--allow numeric" in one.why for one in refused.left_out)
    assert allowed.profile == {"precision.tf32": True}
    assert allowed.quality.envelope is not None and allowed.quality.envelope.verdict == "inside"


def test_refusals_and_crashes_are_told_and_the_rest_goes_on() -> None:
    machine = Machine(lambda profile: _STEP_S / (1.5 if "loader.prefetch" in profile else 1.0))
    machine.refused = {"gc.defer": "the script sets it itself"}
    machine.fails = {"sync.skip"}

    fix = fixed(machine, found("gc.defer", "sync.skip", "loader.prefetch"))

    assert fix.profile == {"loader.prefetch": 4}
    said = {one.planned.id: (one.state, one.why) for one in fix.tried}
    assert said["gc.defer"] == ("refused", "the script sets it itself")
    assert said["sync.skip"][0] == "failed" and "RuntimeError: broken" in said["sync.skip"][1]


def test_a_healthy_script_keeps_nothing_in_many_searches() -> None:
    kept = 0
    for seed in range(20):
        machine = Machine(lambda profile: _STEP_S, noise=0.015)
        machine._draw = np.random.default_rng(seed)
        fix = fixed(machine, found("gc.defer", "sync.skip", "loader.prefetch", "loader.persistent"))
        kept += bool(fix.profile)

    assert kept <= 1


def test_a_script_that_does_not_train_is_one_line() -> None:
    machine = Machine(lambda profile: _STEP_S)
    search = Search(
        Bench(Settings(("train.py",)), lambda request: Trial("look", {}, "crashed", "boom")), machine.report
    )

    with pytest.raises(FlatoutError, match=r"does not train as it is \(crashed: boom\)"):
        search.look()


def test_no_trial_is_made_when_the_time_is_spent() -> None:
    machine = Machine(lambda profile: _STEP_S)

    fix = fixed(machine, found("gc.defer"), budget_s=0.001)

    assert states(fix) == {"gc.defer=True": "not measured"}
    assert fix.ended == "the time was spent"
