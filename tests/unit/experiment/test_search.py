"""The search on a machine that is known: what each remedy gains there is given, and the search has to find it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flatout.errors import FlatoutError
from flatout.experiment.bench import Bench, Settings, take_first_look
from flatout.experiment.request import Request
from flatout.experiment.sizing import Sizes, sizes
from flatout.records.message import message, verbatim
from flatout.records.trial import Trial
from flatout.words import english
from tests.cases.evidence import run
from tests.unit.experiment.known_machine import STEP_S, Machine, fixed, found, on_gpu, states


def test_what_helps_is_kept_what_does_not_is_undone() -> None:
    gains = {"loader.prefetch": 1.6, "gc.defer": 1.0, "sync.skip": 0.5}
    machine = Machine(lambda profile: STEP_S / float(np.prod([gains[name] for name in profile])))
    machine.looks["loader.prefetch"] = found(*gains)

    fix = fixed(machine, found(*gains))

    assert fix.profile == {"loader.prefetch": 4}
    assert states(fix) == {"loader.prefetch=4": "kept", "gc.defer=True": "neutral", "sync.skip=True": "harmful"}
    assert fix.gain is not None and fix.gain.low < 1.6 < fix.gain.high
    assert fix.quality.identity is not None and fix.quality.identity.verdict == "identical"
    assert fix.hours_before is not None and fix.hours_before.mid == pytest.approx(100_000 * STEP_S / 3600, rel=0.1)


def test_workers_are_doubled_as_long_as_that_helps() -> None:
    def seconds(profile: Mapping[str, Any]) -> float:
        workers = profile.get("loader.workers", 1)
        return STEP_S / (1.5 if workers == "auto" else min(4, workers))

    machine = Machine(seconds)
    machine.looks["loader.workers"] = found("loader.workers", workers=2)

    fix = fixed(machine, found("loader.workers", workers=2))

    assert fix.profile == {"loader.workers": 4}
    assert states(fix) == {
        "loader.workers=2": "outdone",
        "loader.workers=auto": "outdone",
        "loader.workers=4": "kept",
        "loader.workers=8": "outdone",
    }


def test_later_trials_begin_with_the_workers_that_were_found() -> None:
    machine = Machine(lambda profile: STEP_S / (2.0 if profile else 1.0))
    machine.told["loader.workers"] = {"train.py:7": message("workers.set", before=0, after=6), "randomness": "none"}

    fix = fixed(machine, found("loader.workers", workers=2))

    assert fix.profile == {"loader.workers": "auto"}
    tuned = [one for one in machine.asked if one.remedies == fix.profile]
    assert [one.workers for one in tuned if not one.feeds] == [{}] + [{"train.py:7": 6}] * (len(tuned) - 2)
    assert [one.workers for one in tuned if one.feeds] == [{}]


def test_what_the_last_trial_found_is_what_the_next_begins_with() -> None:
    class Growing(Machine):
        def __call__(self, request: Request) -> Trial:
            begins_with = max(request.workers.values(), default=4)
            self.told["loader.workers"] = {"train.py:7": message("workers.set", before=0, after=begins_with + 1)}
            return super().__call__(request)

    machine = Growing(lambda profile: STEP_S / (2.0 if profile else 1.0))
    fix = fixed(machine, found("loader.workers", workers=2))

    tuned = [one for one in machine.asked if one.remedies == fix.profile and not one.feeds]
    assert [one.workers.get("train.py:7") for one in tuned] == [None, *range(5, 4 + len(tuned))]


@pytest.mark.parametrize(("gain", "is_foretold"), [(1.4, True), (3.0, False)])
def test_one_that_does_what_was_foretold_is_not_judged_as_one_of_many(gain: float, is_foretold: bool) -> None:
    machine = Machine(lambda profile: STEP_S / (1.6 if "sync.skip" in profile else 1.0))

    fix = fixed(machine, found("sync.skip", "gc.defer", "loader.prefetch", gain=gain))

    (decision,) = (one.decision for one in fix.tried if one.planned.id == "sync.skip")
    assert decision is not None and decision.gain is not None
    assert (decision.gain.confidence < 0.99) == is_foretold


def test_workers_tuned_while_they_run_are_kept_if_they_are_better() -> None:
    def seconds(profile: Mapping[str, Any]) -> float:
        return STEP_S / (3.0 if profile.get("loader.workers") == "auto" else 1.0)

    fix = fixed(Machine(seconds), found("loader.workers", workers=2))

    assert fix.profile == {"loader.workers": "auto"}
    assert states(fix) == {"loader.workers=auto": "kept"}


def test_it_looks_again_under_what_was_kept() -> None:
    def seconds(profile: Mapping[str, Any]) -> float:
        fed_s = 0.001 if "loader.prefetch" in profile else STEP_S
        return max(fed_s, 0.02 / (1.5 if "gc.defer" in profile else 1.0))

    machine = Machine(seconds)
    machine.looks["loader.prefetch"] = found("gc.defer")

    fix = fixed(machine, found("loader.prefetch"))

    assert set(fix.profile) == {"loader.prefetch", "gc.defer"}


def test_what_the_bare_script_differs_by_does_not_hide_what_gains_once_it_is_calm() -> None:
    """Its batches come late, now more and now less; with workers they do not."""

    def seconds(profile: Mapping[str, Any]) -> float:
        return (0.02 if "loader.prefetch" in profile else STEP_S) / (1.08 if "gc.defer" in profile else 1.0)

    machine = Machine(seconds, noise=lambda profile: 0.005 if profile else 0.4)
    machine.looks["loader.prefetch"] = found("gc.defer", gain=1.05)

    assert set(fixed(machine, found("loader.prefetch", gain=3.0)).profile) == {"loader.prefetch", "gc.defer"}


def test_no_ceiling_is_measured_for_what_is_too_long_to_be_tried() -> None:
    machine = Machine(lambda profile: 0.02 if profile else STEP_S)
    machine.looks["gc.defer"] = found("loader.persistent", "sync.skip", steps_between=5000)

    fix = fixed(machine, found("gc.defer"), budget_s=120.0)

    assert [one.planned.id for one in fix.tried] == ["gc.defer", "loader.persistent", "sync.skip"]
    assert "comes too seldom" in english(fix.tried[1].why)
    ceiling, skip = (
        next(place for place, one in enumerate(machine.asked) if is_it(one))
        for is_it in (lambda one: one.replays, lambda one: "sync.skip" in one.remedies)
    )
    assert skip < ceiling


def test_whether_pauses_can_be_seen_hangs_on_what_a_step_takes_by_now() -> None:
    machine = Machine(lambda profile: STEP_S / (10.0 if "gc.defer" in profile else 1.0))
    machine.looks["gc.defer"] = found("loader.persistent", steps_between=100)

    tried = {one.planned.id: one for one in fixed(machine, found("gc.defer"), budget_s=150.0).tried}
    at_first = fixed(Machine(lambda profile: STEP_S), found("loader.persistent", steps_between=100), budget_s=150.0)

    assert "comes too seldom" in english(at_first.tried[0].why)
    assert tried["loader.persistent"].state == "neutral"


def test_at_the_ceiling_batches_need_not_come_sooner() -> None:
    machine = Machine(lambda profile: 0.02 if profile else STEP_S, ceiling_s=0.0198)
    machine.looks["loader.prefetch"] = found("loader.pin")

    fix = fixed(machine, found("loader.prefetch"))

    assert set(fix.profile) == {"loader.prefetch"}
    left = ("loader.pin=True", "transfer.async=True")
    assert states(fix) == {"loader.prefetch=4": "kept", **dict.fromkeys(left, "not measured")}
    assert "ceiling" in english(fix.ended)
    assert fix.ceiling is not None and fix.ceiling.enough


def test_what_gains_between_epochs_is_tried_at_the_ceiling_too() -> None:
    machine = Machine(lambda profile: 0.02 if profile else STEP_S, ceiling_s=0.0198)
    machine.looks["loader.prefetch"] = found("loader.persistent")

    fix = fixed(machine, found("loader.prefetch"))

    assert states(fix) == {"loader.prefetch=4": "kept", "loader.persistent=True": "neutral"}


def test_at_the_ceiling_what_raises_it_is_tried() -> None:
    """The ceiling is measured without loading: what saves other time is not bound by it."""

    def seconds(profile: Mapping[str, Any]) -> float:
        fed_s = 0.001 if "loader.prefetch" in profile else STEP_S
        return max(fed_s, 0.02 / (1.5 if "gc.defer" in profile else 1.0))

    machine = Machine(seconds, ceiling_s=0.0198)
    machine.looks["loader.prefetch"] = found("loader.persistent", "gc.defer")

    assert set(fixed(machine, found("loader.prefetch")).profile) == {"loader.prefetch", "gc.defer"}


def test_after_a_large_gain_the_rest_waits_for_the_next_look() -> None:
    machine = Machine(lambda profile: STEP_S / (3.0 if "gc.defer" in profile else 1.0))

    fix = fixed(machine, found("gc.defer", "sync.skip"))

    assert states(fix) == {"gc.defer=True": "kept"}
    assert not any("sync.skip" in request.remedies for request in machine.asked)


def test_pinning_and_copies_are_tried_together() -> None:
    both = {"loader.pin", "transfer.async"}
    machine = Machine(lambda profile: STEP_S / (1.5 if both <= set(profile) else 1.0))

    assert both <= set(fixed(machine, found(*both)).profile)
    # Copies of pageable memory are what was seen: once it is pinned, they need not be waited for.
    assert both <= set(fixed(machine, found("loader.pin")).profile)


def test_a_script_that_does_not_repeat_itself_is_not_held_to_its_bits() -> None:
    """What was kept before was tried once: whether losses repeat is known from the script as it is."""

    def seconds(profile: Mapping[str, Any]) -> float:
        return STEP_S / ((10.0 if "loader.prefetch" in profile else 1.0) * (1.5 if "gc.defer" in profile else 1.0))

    machine = Machine(seconds)
    machine.repeats = False
    machine.looks["loader.prefetch"] = found("gc.defer")

    fix = fixed(machine, found("loader.prefetch"))

    assert set(fix.profile) == {"loader.prefetch", "gc.defer"}


def test_what_is_lossless_must_change_nothing() -> None:
    machine = Machine(lambda profile: STEP_S / (3.0 if profile else 1.0))
    machine.changed = {"gc.defer"}

    fix = fixed(machine, found("gc.defer"))

    assert fix.profile == {}
    assert states(fix) == {"gc.defer=True": "failed"}
    assert "first differs at step 1" in english(fix.tried[0].why)


def test_a_loss_outside_the_envelope_undoes_a_numeric_one() -> None:
    machine = Machine(lambda profile: STEP_S / (3.0 if profile else 1.0))
    machine.changed = {"precision.tf32"}

    fix = fixed(machine, found("precision.tf32"), allow=("numeric",), only=("precision.tf32",))

    assert fix.profile == {}
    assert states(fix) == {"precision.tf32=True": "failed"}


def test_a_numeric_one_is_tried_only_where_that_is_allowed() -> None:
    def seconds(profile: Mapping[str, Any]) -> float:
        return STEP_S / (2.0 if profile else 1.0)

    refused = fixed(Machine(seconds), found("precision.tf32"))
    allowed = fixed(Machine(seconds), found("precision.tf32"), allow=("numeric",), without=("precision.bf16",))

    assert refused.profile == {} and not refused.tried
    assert any(one.id == "precision.tf32" and "--allow numeric" in english(one.why) for one in refused.left_out)
    assert allowed.profile == {"precision.tf32": True}
    assert allowed.quality.envelope is not None and allowed.quality.envelope.verdict == "inside"


def test_what_a_class_that_is_not_allowed_promises_is_said() -> None:
    def notices(gain: float) -> list[str]:
        fix = fixed(Machine(lambda profile: STEP_S), found("precision.tf32", gain=gain))
        return [english(notice) for notice in fix.notices if notice.id == "fix.not_allowed_yet"]

    (said,) = notices(1.4)
    assert said.startswith("not tried without --allow numeric: ") and "precision.tf32" in said
    assert said.endswith("predicted to gain ×1.40")
    assert not notices(1.05), "too little to change a class for"


def test_refusals_and_crashes_are_told_and_the_rest_goes_on() -> None:
    machine = Machine(lambda profile: STEP_S / (1.5 if "loader.prefetch" in profile else 1.0))
    machine.refused = {"gc.defer": "the script sets it itself"}
    machine.fails = {"sync.skip"}
    machine.looks["loader.prefetch"] = found("gc.defer", "sync.skip")

    fix = fixed(machine, found("gc.defer", "sync.skip", "loader.prefetch"))

    assert fix.profile == {"loader.prefetch": 4}
    said = {one.planned.id: (one.state, english(one.why)) for one in fix.tried}
    assert said["gc.defer"] == ("refused", "the script sets it itself")
    assert said["sync.skip"][0] == "failed" and "RuntimeError: broken" in said["sync.skip"][1]


def test_a_healthy_script_keeps_nothing_in_many_searches() -> None:
    kept = 0
    for seed in range(20):
        machine = Machine(lambda profile: STEP_S, noise=0.015)
        machine._draw = np.random.default_rng(seed)
        fix = fixed(machine, found("gc.defer", "sync.skip", "loader.prefetch", "loader.persistent"))
        kept += bool(fix.profile)

    assert kept <= 1


def test_a_script_that_does_not_train_is_one_line() -> None:
    machine = Machine(lambda profile: STEP_S)
    settings = Settings(("train.py",))

    with pytest.raises(FlatoutError, match=r"does not train as it is \(crashed: boom\)"):
        take_first_look(settings, lambda request: Trial("look", {}, "crashed", verbatim("boom")), machine.report)


def test_no_trial_is_made_when_the_time_is_spent() -> None:
    machine = Machine(lambda profile: STEP_S)

    fix = fixed(machine, found("gc.defer"), budget_s=0.001)

    assert states(fix) == {"gc.defer=True": "not measured"}
    assert english(fix.ended) == "the time was spent"


def test_what_begins_with_the_second_epoch_is_waited_for_or_left_out() -> None:
    loaders: dict[str, Any] = {"torch": {"training_loaders": [1]}}
    loaders["loaders"] = [{"id": 1, "dataset_len": 80, "batch_sampler_size": 8}]
    sized = sizes(Trial("look", {}, "stopped", step_s=(STEP_S,) * 20), replace(run().report, live=loaders), 48.0)
    bench = Bench(Settings(("train.py",), budget_s=60.0), Machine(lambda profile: STEP_S), sized)
    kept = {"memo.function": "train:targets"}

    assert sized.epoch_steps == 10
    assert sized.fewest(kept) > sized.fewest({}) + 10
    assert bench.too_long(kept) is None
    bench.sizes = replace(sized, epoch_steps=100)
    late = bench.too_long(kept)
    assert late is not None and "second epoch" in english(late)
    assert bench.too_long({}) is None


def test_what_a_trial_has_left_for_the_next_need_not_be_waited_for_again() -> None:
    machine = Machine(lambda profile: STEP_S / (5.0 if "memo.function" in profile else 1.0))
    machine.told["memo.function"] = {"hits_from_step": 5, "carried": True}
    bench = Bench(Settings(("train.py",)), machine, Sizes(10, 30, 5.0, STEP_S, 2.0, epoch_steps=100))
    kept, other = ({"memo.function": f"train:{name}"} for name in ("targets", "others"))
    late_s = bench.lasts_s(kept)

    bench.trial(kept, "memo.function")

    assert not bench.sizes.waits(kept) and bench.sizes.waits({**kept, **other})
    assert bench.lasts_s({**kept, "precision.tf32": True}) < late_s - 100 * STEP_S
    assert machine.asked[0].steps - bench.sizes.fewest(kept) > 100


@pytest.mark.parametrize(
    ("step_s", "given_s", "budget_s"), [(0.05, 285.0, 285.0), (0.1, 285.0, 600.0), (0.05, None, 600.0)]
)
def test_quick_steps_take_less_time_unless_it_is_given(step_s: float, given_s: float | None, budget_s: float) -> None:
    machine = Machine(lambda profile: step_s)

    bench, _ = take_first_look(Settings(("train.py",), quick_budget_s=given_s), machine, machine.report)

    assert bench.settings.budget_s == budget_s


@pytest.mark.parametrize(
    ("steps", "pauses", "step_s"),
    [
        ((0.4, 1.4) * 10, (), 0.9),  # two workers bring a batch late, and the next with it
        ((0.5,) * 19 + (6.5,), (0.0,) * 19 + (6.0,), 0.5),  # an evaluation
        ((0.01,) * 19 + (60.0,), (), 0.0195),  # something that happens once
    ],
)
def test_time_is_planned_by_what_steps_take_on_average(
    steps: tuple[float, ...], pauses: tuple[float, ...], step_s: float
) -> None:
    look = Trial("look", {}, "stopped", step_s=steps, pause_s=pauses, wall_s=80.0)

    assert sizes(look, run().report, 48.0).step_s == pytest.approx(step_s)


@pytest.mark.parametrize(("step_s", "batches"), [(0.02, 8), (0.8, 4)])
def test_a_ceiling_is_timed_once_its_batches_are_on_the_device(step_s: float, batches: int) -> None:
    machine = Machine(lambda profile: step_s)
    bench, _ = take_first_look(Settings(("train.py",)), machine, machine.report)

    bench.ceiling({"loader.workers": 4})

    asked = machine.asked[-1]
    assert asked.replays == batches and asked.warm_up > batches + 1 and not asked.remedies
    assert asked.enough is not None and asked.enough[1] == asked.warm_up < asked.enough[0]


def test_of_two_that_cannot_hold_together_the_second_is_left_out() -> None:
    def seconds(profile: Mapping[str, Any]) -> float:
        return STEP_S / (2.0 if profile else 1.0)

    machine = Machine(seconds)
    machine.looks["graphs.model"] = machine.looks[""] = on_gpu("compile.model")

    fix = fixed(machine, on_gpu("compile.model"), allow=("numeric",), only=("compile.model", "graphs.model"))

    assert fix.profile == {"graphs.model": True}
    assert all("compile.model" not in request.remedies for request in machine.asked)


def test_what_changes_numbers_asks_no_more_of_the_bare_script_than_the_lossless_part_does() -> None:
    """Graphs begin after 80 steps; of a bare script that takes 1.3 s for each, the proof needs none of them."""
    memo = {"memo.function": "engine:targets"}
    sized = Sizes(4, 10, 5.0, 1.3, 8.0, epoch_steps=20, carried=frozenset(memo.items()))
    bench = Bench(Settings(("train.py",), budget_s=2000.0), Machine(lambda profile: 1.3), sized)

    more_s = bench.reserve_s({**memo, "graphs.model": True}) - bench.reserve_s(memo)

    assert more_s < 10.0
