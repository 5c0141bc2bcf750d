"""A machine that is known: what each remedy gains there is given, and a search has to find it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.experiment.bench import Bench, Settings, take_first_look
from flatout.experiment.plan import Wishes
from flatout.experiment.proof import conclude, prove_profile
from flatout.experiment.request import Request
from flatout.experiment.search import Search
from flatout.problems.catalogue import problems
from flatout.records.fix import Fix, Quality
from flatout.records.message import NOTHING, Message, verbatim
from flatout.records.report import Finding, Gain, Location, RemedyState, RunReport
from flatout.records.trial import Trial
from flatout.remedies.catalogue import known
from tests.cases.evidence import run

STEP_S = 0.1
Truth = Callable[[Mapping[str, Any]], float]


class Machine:
    """Makes trials without running anything: `seconds` says what a step takes under a profile.

    `noise` is what processes differ by, or says so of each profile.
    """

    def __init__(self, seconds: Truth, ceiling_s: float = 0.001, noise: float | Truth = 0.01) -> None:
        self._seconds = seconds
        self._ceiling_s = ceiling_s
        self._noise = noise
        self._draw = np.random.default_rng(7)
        self._luck = np.random.default_rng(8)
        self.refused: dict[str, str] = {}
        self.changed: set[str] = set()
        # Whether the same script gives the same losses again.
        self.repeats = True
        self.fails: set[str] = set()
        # What remedies tell of what they found to act on.
        self.told: dict[str, dict[str, object]] = {"cadence.eval": {"function": "evaluate"}}
        self.asked: list[Request] = []
        self.looks: dict[str, RunReport] = {}
        # What the script prints of its quality, by what is in force; processes differ by a thousandth.
        self.quality: Callable[[Mapping[str, Any]], float] = lambda profile: 30.0

    def __call__(self, request: Request) -> Trial:
        self.asked.append(request)
        if set(request.remedies) & self.fails:
            return Trial(request.arm, dict(request.remedies), "crashed", verbatim("RuntimeError: broken"))
        is_alone = request.replays or request.feeds
        mean_s = self._ceiling_s if is_alone else self._seconds(request.remedies)
        steps = _steps_of(request, mean_s)
        count = steps - request.warm_up
        noise = self._noise(request.remedies) if callable(self._noise) else self._noise
        step_s = mean_s * np.exp(self._draw.normal(0, 0.05, count) + self._draw.normal(0, noise))
        other = len(self.changed & set(request.remedies))
        remedies = known()
        luck = 0.0 if self.repeats else self._luck.normal(0, 1e-6)
        perturbed = request.perturbed * (1 + request.repeat) / 10
        printed = self.quality(request.remedies) + self._luck.normal(0, 0.03)
        return Trial(
            request.arm,
            dict(request.remedies),
            "stopped",
            step_s=tuple(step_s.tolist()),
            samples=(8.0,) * count,
            losses=tuple(2.0 / (1 + step) + other + perturbed + luck for step in range(steps)),
            weights=f"{request.digest_at} {other} {luck}",
            steps=request.digest_at or steps,
            metric=printed if request.metric else None,
            metrics=(printed,) if request.metric else (),
            states=tuple(
                RemedyState(
                    name, remedies[name].safety, value, *self._state(name), step=1, live=self.told.get(name, {})
                )
                for name, value in request.remedies.items()
            ),
            wall_s=float(step_s.sum()) + 2.0,
            run=",".join(sorted(request.remedies)),
        )

    def _state(self, name: str) -> tuple[str, Message]:
        return ("refused", verbatim(self.refused[name])) if name in self.refused else ("applied", NOTHING)

    def report(self, trial: Trial) -> RunReport:
        return self.looks.get(trial.run, run().report)


def _steps_of(request: Request, mean_s: float) -> int:
    """As many as the trial itself would make."""
    most = min(request.steps, request.warm_up + max(1, round(request.seconds / mean_s)))
    if request.enough is None:
        return most
    fewest, counted_from, seconds = request.enough
    return min(most, max(fewest, counted_from + round(seconds / mean_s)))


def found(*remedies: str, gain: float = 1.5, **evidence: int) -> RunReport:
    """A run with one finding for each remedy."""
    codes = {one.remedy: one for one in problems() if one.remedy}
    here, predicted = Location("train.py", 7), Gain(gain, gain, gain, verbatim("given"))
    return replace(
        run().report,
        findings=tuple(
            Finding(
                codes[name].code,
                "x",
                codes[name].title,
                "high",
                here,
                dict(evidence),
                verbatim("why"),
                name,
                None,
                predicted,
            )
            for name in remedies
        ),
    )


def on_gpu(*remedies: str) -> RunReport:
    report = found(*remedies)
    return replace(report, run=replace(report.run, device="GPU", exit_code=None))


def fixed(
    machine: Machine, look: RunReport, budget_s: float = 600.0, metric: str | None = None, **wishes: tuple[str, ...]
) -> Fix:
    machine.looks.setdefault("", look)
    settings = Settings(("train.py",), Wishes(**wishes), budget_s, metric)
    return _fixed(machine, *take_first_look(settings, machine, machine.report))


def fixed_by_clock(machine: Machine, look: RunReport, budget_s: float, start_s: float) -> Fix:
    """The same where time passes: as much as the trials say, and so many seconds more for the start of each."""
    machine.looks.setdefault("", look)
    now_s = [0.0]

    def make(request: Request) -> Trial:
        trial = machine(request)
        now_s[0] += trial.wall_s + start_s
        return replace(trial, wall_s=trial.wall_s + start_s)

    settings = Settings(("train.py",), Wishes(), budget_s)
    return _fixed(machine, *take_first_look(settings, make, machine.report, lambda: now_s[0]))


def _fixed(machine: Machine, bench: Bench, report: RunReport) -> Fix:
    search = Search(bench, machine.report)
    search.run(report)
    quality = prove_profile(bench, search) if search.found.profile else Quality()
    return conclude(bench, search, report, quality)


def states(fix: Fix) -> dict[str, str]:
    return {f"{one.planned.id}={one.planned.value}": one.state for one in fix.tried}


class Turning(Machine):
    """Arms that take turns see the same machine, without what processes differ by."""

    def in_turns(self, trial: Trial) -> dict[str, Trial]:
        asked = next(one for one in reversed(self.asked) if one.arms)
        turns = 6
        return {
            name: replace(
                trial,
                arm=name,
                step_s=tuple((self._turn_s(trial, remedies) * np.exp(self._draw.normal(0, 0.01, turns))).tolist()),
                samples=(),
                states=tuple(RemedyState(one, "numeric", True, *self._state(one)) for one in remedies),
            )
            for name, remedies in asked.arms
        }

    def _turn_s(self, trial: Trial, remedies: Mapping[str, Any]) -> float:
        in_force = {**trial.remedies, **remedies}
        return self._seconds({name: value for name, value in in_force.items() if value is not None})
