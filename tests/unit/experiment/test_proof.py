"""The proof at the end of a search, on a machine that is known: metric, losses, pauses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.experiment.bench import Settings, take_first_look
from flatout.experiment.plan import Wishes
from flatout.experiment.proof import conclude, prove_profile
from flatout.experiment.request import Request
from flatout.experiment.search import Search
from flatout.records.report import RunReport
from flatout.records.trial import Ending, Trial
from flatout.words import chinese_if_known, english
from tests.unit.experiment.known_machine import STEP_S, Machine, Turning, fixed, fixed_by_clock, found, states


def test_a_metric_that_gets_worse_undoes_what_is_numeric_and_leaves_the_rest() -> None:
    machine = Machine(lambda profile: STEP_S / 2.0 ** len(profile))
    machine.quality = lambda profile: 29.0 if "precision.tf32" in profile else 30.0
    machine.looks["loader.prefetch"] = found("precision.tf32")

    fix = fixed(
        machine,
        found("loader.prefetch"),
        metric="PSNR: (.*)",
        allow=("numeric",),
        only=("loader.prefetch", "precision.tf32"),
    )

    assert fix.profile == {"loader.prefetch": 4}
    undone = next(one for one in fix.tried if one.planned.id == "precision.tf32")
    assert undone.state == "neutral" and "worse by" in english(undone.why)
    assert fix.quality.metric is not None and fix.quality.metric.verdict == "inside"
    assert fix.quality.identity is not None and fix.quality.identity.verdict == "identical"


def test_a_metric_that_stays_is_said_with_what_could_not_have_been_seen() -> None:
    machine = Machine(lambda profile: STEP_S / 2.0 ** len(profile))

    fix = fixed(machine, found("precision.tf32"), metric="PSNR: (.*)", allow=("numeric",), only=("precision.tf32",))

    assert fix.profile == {"precision.tf32": True}
    assert fix.quality.metric is not None and fix.quality.metric.verdict == "inside"
    assert "could not have been seen" in english(fix.quality.metric.sentence)


def test_a_loss_that_the_proof_finds_outside_undoes_what_is_numeric_only() -> None:
    """The search has no control trials where time is short; the proof has."""
    machine = Machine(lambda profile: STEP_S / 2.0 ** len(profile))
    machine.changed = {"precision.tf32"}
    machine.looks[""] = found("loader.prefetch", "precision.tf32")
    bench, _ = take_first_look(Settings(("train.py",), Wishes(("numeric",))), machine, machine.report)
    search = Search(bench, machine.report)
    search.measure_bare()
    search.found.profile = {"loader.prefetch": 4, "precision.tf32": True}

    quality = prove_profile(bench, search)

    assert search.found.profile == {"loader.prefetch": 4}
    assert quality.identity is not None and quality.identity.verdict == "identical"


def test_a_pause_in_a_faster_arm_does_not_count_against_it() -> None:
    """The faster arm gets as far as an evaluation within its trial, the bare script does not."""
    machine = Machine(lambda profile: STEP_S / (4.0 if "loader.workers" in profile else 1.0))

    def with_pause(request: Request) -> Trial:
        trial = machine(request)
        if "loader.workers" not in request.remedies or len(trial.step_s) < 20:
            return trial
        pauses = [0.0] * len(trial.step_s)
        pauses[15] = 100 * STEP_S
        steps = [step_s + pause_s for step_s, pause_s in zip(trial.step_s, pauses, strict=True)]
        return replace(trial, step_s=tuple(steps), pause_s=tuple(pauses))

    machine.looks[""] = found("loader.workers", workers=2)
    bench, report = take_first_look(Settings(("train.py",)), with_pause, machine.report)
    search = Search(bench, machine.report)
    search.run(report)
    quality = prove_profile(bench, search)
    fix = conclude(bench, search, report, quality)

    assert fix.gain is not None
    assert fix.gain.mid == pytest.approx(4.0, rel=0.05)
    assert any("not counted" in notice for notice in map(english, fix.notices))


@pytest.mark.parametrize(("ending", "is_told"), [("out of memory", True), ("hung", True), ("out of time", False)])
def test_a_trial_of_the_profile_that_failed_is_told(ending: Ending, is_told: bool) -> None:
    machine = Machine(lambda profile: STEP_S / (2.0 if "loader.workers" in profile else 1.0))
    machine.told["loader.workers"] = {"memory": "the machine's memory ran short: 4 workers instead of 8"}

    class Failing(Turning):
        """Longer than all others, the one in turns does not end well."""

        def __call__(self, request: Request) -> Trial:
            trial = machine(request)
            return replace(trial, ending=ending, step_s=()) if request.arms else trial

    failing = Failing(lambda profile: STEP_S)
    failing.looks = {"": found("loader.workers", workers=2), "loader.workers": found("precision.tf32")}
    wishes = {"allow": ("numeric",), "only": ("loader.workers", "precision.tf32")}
    fix = fixed(failing, failing.looks[""], **wishes)

    assert "loader.workers" in fix.profile and fix.failures
    told = [notice for notice in map(english, fix.notices) if "A longer training may, too" in notice]
    assert told == (
        [f"a trial of all that is kept, and of more in turns with it, ended so: {ending}. A longer training may, too"]
        if is_told
        else []
    )
    assert "in a trial under the profile the machine's memory ran short: 4 workers instead of 8" in [
        *map(english, fix.notices)
    ]
    assert all(chinese_if_known(notice) is not None for notice in fix.notices)


@pytest.mark.parametrize(("code", "is_told"), [("ME706", True), ("ME701", False)])
def test_a_script_that_becomes_faster_by_itself_is_told_of(code: str, is_told: bool) -> None:
    machine = Machine(lambda profile: STEP_S / (2.0 if profile else 1.0))
    look = found("loader.prefetch")
    look = replace(look, findings=(*look.findings, replace(look.findings[0], code=code, remedy=None)))

    fix = fixed(machine, look)

    told = [notice for notice in fix.notices if "becomes faster by itself" in english(notice)]
    assert bool(told) is is_told and all(chinese_if_known(notice) is not None for notice in told)


class Pausing(Machine):
    """An evaluation of two seconds comes after every 40 steps, and seldomer where that is asked for."""

    def __call__(self, request: Request) -> Trial:
        trial = super().__call__(request)
        every = 40 * (10 if "cadence.eval" in request.remedies else 1)
        pauses = [2.0 if step % every == 0 else 0.0 for step in range(request.warm_up, request.warm_up + 4000)]
        pauses = pauses[: len(trial.step_s)]
        steps = [step_s + pause_s for step_s, pause_s in zip(trial.step_s, pauses, strict=True)]
        return replace(trial, step_s=tuple(steps), pause_s=tuple(pauses))


def _seldom(steps_between: int) -> RunReport:
    report = found("cadence.eval", interval_times=10, steps_between=steps_between)
    return replace(report, run=replace(report.run, steps=150))


def test_where_a_remedy_is_about_pauses_all_figures_have_them_in() -> None:
    fix = fixed(Pausing(lambda profile: STEP_S), _seldom(40), allow=("training",), only=("cadence.eval",))

    assert list(fix.profile) == ["cadence.eval"]
    assert fix.gain is not None and fix.gain.by == "total"
    assert fix.gain.low < (STEP_S + 2.0 / 40) / (STEP_S + 2.0 / 400) < fix.gain.high
    before = fix.hours_before
    assert before is not None and before.low < 100_000 * (STEP_S + 2.0 / 40) / 3600 < before.high
    # One evaluation in 400 steps is more than a trial lasts, and that is said.
    assert fix.hours_after is not None and fix.hours_after.low < 100_000 * STEP_S / 3600 < fix.hours_after.high
    assert any("come so seldom under the profile" in notice for notice in map(english, fix.notices))


def test_pauses_that_were_seen_already_count_where_there_is_no_time_to_see_them_again() -> None:
    machine = Pausing(lambda profile: STEP_S)

    fix = fixed(machine, _seldom(40), budget_s=110.0, allow=("training",), only=("cadence.eval",))

    assert list(fix.profile) == ["cadence.eval"]
    assert fix.gain is not None and fix.gain.low < (STEP_S + 2.0 / 40) / STEP_S < fix.gain.high


def test_pauses_that_no_trial_would_see_are_not_judged() -> None:
    machine = Pausing(lambda profile: STEP_S)

    fix = fixed(machine, _seldom(4000), allow=("training",), only=("cadence.eval",))

    assert list(states(fix).values()) == ["not measured"]
    assert "comes too seldom to be seen in trials; --budget would have to be" in english(fix.tried[0].why)
    assert not any("cadence.eval" in request.remedies for request in machine.asked)


def test_a_script_too_slow_to_see_its_pauses_counts_without_them_and_the_time_is_kept() -> None:
    slow_s, quick_s, pause_s = 1.4, 0.03, 0.4

    class EachEpoch(Machine):
        """A pause every 20 steps, half as long with workers that live on."""

        def __call__(self, request: Request) -> Trial:
            trial = super().__call__(request)
            each_s = pause_s / (2.0 if "loader.persistent" in request.remedies else 1.0)
            places = range(request.warm_up, request.warm_up + len(trial.step_s))
            pauses = [each_s if step % 20 == 0 else 0.0 for step in places]
            steps = tuple(one + pause for one, pause in zip(trial.step_s, pauses, strict=True))
            return replace(trial, step_s=steps, pause_s=tuple(pauses), wall_s=trial.wall_s + sum(pauses))

    machine = EachEpoch(lambda profile: quick_s if "gc.defer" in profile else slow_s)
    machine.looks["gc.defer"] = found("loader.persistent", steps_between=20, gain=1.2)
    # What comes to nothing takes all the time that is not kept for the proof.
    idle = ("loader.prefetch", "memory.keep", "sync.skip", "transfer.async", "transfer.prefetch", "autograd.plain")
    machine.looks["gc.defer,loader.persistent"] = found(*idle, gain=1.02)
    fix = fixed_by_clock(machine, found("gc.defer", gain=20.0), budget_s=450.0, start_s=16.0)

    assert list(fix.profile) == ["gc.defer", "loader.persistent"]
    assert 400.0 < fix.took_s < 450.0
    assert fix.gain is not None and fix.gain.low < slow_s / (quick_s + pause_s / 40) < fix.gain.high
    # The ceiling is counted with pauses, too: both figures are of the same kind.
    assert fix.ceiling is not None and fix.ceiling.reached is not None and fix.ceiling.reached.by == "total"
    assert fix.ceiling.achieved_per_s == pytest.approx(fix.after_per_s)
    assert any("are counted in After alone" in notice for notice in map(english, fix.notices))


def test_a_remedy_that_found_nothing_to_act_on_was_not_measured() -> None:
    machine = Pausing(lambda profile: STEP_S)
    machine.told = {}

    fix = fixed(machine, _seldom(40), allow=("training",), only=("cadence.eval",))

    assert [(one.state, english(one.why)) for one in fix.tried] == [
        ("not measured", "no evaluation was seen that could be left out")
    ]


def test_there_is_time_to_verify_the_losses_of_a_slow_script_that_does_not_repeat_itself() -> None:
    machine = Machine(lambda profile: 0.65 / 2.0 ** len(profile))
    machine.repeats = False
    machine.looks[""] = found("loader.prefetch", "gc.defer", "sync.skip", "checkpoint.async", gain=1.05)
    machine.looks["loader.prefetch"] = machine.looks["loader.prefetch,gc.defer"] = machine.looks[""]

    fix = fixed_by_clock(machine, machine.looks[""], budget_s=480.0, start_s=13.0)

    assert fix.profile and fix.took_s < 1.1 * 480.0
    assert fix.quality.envelope is not None and fix.quality.envelope.verdict == "inside"
