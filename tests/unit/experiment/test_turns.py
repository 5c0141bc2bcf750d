"""Remedies that take turns within one process, on a machine that is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from flatout.experiment.bench import Bench, Settings, take_first_look
from flatout.experiment.decide import Turns
from flatout.experiment.plan import Wishes
from flatout.experiment.search import Search
from flatout.experiment.sizing import Sizes
from flatout.experiment.turns import build_arms, count_timed_steps, count_turn_steps
from flatout.records.fix import Planned
from flatout.records.message import verbatim
from flatout.records.report import GpuUse
from flatout.records.trial import Trial
from tests.cases.evidence import phases
from tests.unit.experiment.known_machine import Turning, found, on_gpu


def test_what_can_be_switched_is_weighed_in_one_process() -> None:
    """A gain of 4% drowns in what processes differ by, 8% here, but not in turns."""
    machine = Turning(lambda profile: 0.05 / (1.04 if "precision.tf32" in profile else 1.0), noise=0.08)
    machine.looks[""] = found("precision.tf32", "layout.channels_last", "optimizer.fused")
    machine.refused["optimizer.fused"] = "the script sets fused itself"
    bench, report = take_first_look(Settings(("train.py",), Wishes(("numeric",))), machine, machine.report)
    search = Search(bench, machine.report, machine.in_turns)
    search.run(report)

    assert {one.planned.id: one.state for one in search.found.tried} == {
        "precision.tf32": "kept",
        "precision.bf16": "neutral",
        "layout.channels_last": "neutral",
        "optimizer.fused": "refused",
    }
    assert search.found.profile == {"precision.tf32": True}
    alone = [request for request in machine.asked if "layout.channels_last" in request.remedies]
    assert not alone


@pytest.mark.parametrize(("gain", "kept"), [(1.06, True), (1.0, False)])
def test_what_can_rest_is_weighed_with_and_without_it_in_one_process(gain: float, kept: bool) -> None:
    three = {"loader.pin", "transfer.async", "transfer.prefetch"}
    machine = Turning(lambda profile: 0.06 / (gain if three <= set(profile) else 1.0), noise=0.05)
    machine.looks[""] = found("loader.pin", "transfer.async")
    bench, report = take_first_look(Settings(("train.py",)), machine, machine.report)
    search = Search(bench, machine.report, machine.in_turns)
    search.run(report)

    assert set(search.found.profile) == (three if kept else set())
    (turns,) = (one for one in machine.asked if one.arms)
    assert set(turns.remedies) == three and dict(turns.arms)["as it is"] == dict.fromkeys(three)
    # What was made ahead of a turn has to be used up in it, and one process with them beside that is enough.
    assert turns.settling > 8 and [one.arm for one in machine.asked].count(" + ".join(sorted(three))) == 1


def test_what_makes_the_device_quicker_waits_until_launching_no_longer_holds_it_up() -> None:
    """TF32 gains 15%, but only once graphs are replayed."""

    def seconds(profile: Mapping[str, Any]) -> float:
        is_replayed = "graphs.model" in profile
        return 0.3 / (1.15 if is_replayed else 1.0) / (1.15 if is_replayed and "precision.tf32" in profile else 1.0)

    machine = Turning(seconds)
    gpu, took = GpuUse(busy_share=0.7, sm_active=0.3), phases(forward=40, backward=50, optimizer=10)
    machine.looks[""] = machine.looks["graphs.model"] = replace(on_gpu("precision.tf32"), gpu=gpu, phases=took)
    bench, report = take_first_look(Settings(("train.py",), Wishes(("numeric",))), machine, machine.report)
    search = Search(bench, machine.report, machine.in_turns)
    search.run(report)

    assert {"graphs.model", "precision.tf32"} <= set(search.found.profile)
    first = next(one for one in machine.asked if one.arms or one.remedies)
    assert set(first.remedies) == {"graphs.model"} and not first.arms


def test_what_the_bare_script_differs_by_puts_off_nothing_once_something_is_kept() -> None:
    """Its batches come late, now more and now less: beside that 5% are little, but not once workers load them."""
    machine = Turning(lambda profile: 0.06 if profile else 0.3, noise=lambda profile: 0.005 if profile else 0.15)
    calm, switched = found("gc.defer", gain=1.05), on_gpu("precision.tf32", "optimizer.fused")
    machine.looks["loader.prefetch"] = replace(switched, findings=(*calm.findings, *switched.findings))
    machine.looks[""] = found("loader.prefetch", gain=5.0)
    bench, report = take_first_look(Settings(("train.py",), Wishes(("numeric",))), machine, machine.report)
    search = Search(bench, machine.report, machine.in_turns)
    search.run(report)

    order = [one.arm for one in machine.asked]
    assert order.index("gc.defer") < order.index("remedies in turns")


def test_a_gain_that_was_foretold_is_seen_once_more_before_turns_are_taken() -> None:
    machine = Turning(lambda profile: 0.05 / (1.15 if "memory.keep" in profile else 1.0), noise=0.02)
    machine.looks[""] = found("memory.keep", gain=1.14)
    bench, report = take_first_look(Settings(("train.py",)), machine, machine.report)
    search = Search(bench, machine.report, machine.in_turns)
    search.run(report)

    assert set(search.found.profile) == {"memory.keep"}
    arms = [one.arm for one in machine.asked]
    assert arms.count("memory.keep") == 2 and "remedies in turns" not in arms


@pytest.mark.parametrize(("gain", "judgement"), [(1.2, "kept"), (1.0, "neutral")])
def test_graphs_are_weighed_in_turns_where_processes_differ_by_much(gain: float, judgement: str) -> None:
    machine = Turning(lambda profile: 0.05 / (gain if "graphs.model" in profile else 1.0), noise=0.15)
    bench = Bench(Settings(("train.py",)), machine, Sizes(10, 30, 5.0, 0.05, 2.0))
    graphs = [Planned("graphs.model", True, "numeric", "", verbatim(""))]

    decision = Turns(bench, machine.in_turns).together(graphs, {"graphs.model": True}, instead_of=6)

    assert decision is not None and decision.judgement == judgement


def test_turns_that_differ_by_themselves_count_for_nothing() -> None:
    machine = Turning(lambda profile: 0.05)
    machine.looks[""] = found("precision.tf32", "layout.channels_last")
    bench, report = take_first_look(Settings(("train.py",), Wishes(("numeric",))), machine, machine.report)

    def lucky(trial: Trial) -> dict[str, Trial]:
        arms = machine.in_turns(trial)
        arms["as it is, again"] = replace(arms["as it is"], step_s=tuple(s / 1.5 for s in arms["as it is"].step_s))
        return arms

    search = Search(bench, machine.report, lucky)
    search.run(report)

    assert not search.found.profile
    # One that hardly helps without the other is tried with it.
    both = {"precision.tf32": True, "layout.channels_last": True}
    assert any(request.remedies == both for request in machine.asked)


@pytest.mark.parametrize(
    ("together", "kept"), [(2.0, {"precision.bf16", "layout.channels_last"}), (1.1, {"precision.bf16"})]
)
def test_half_precision_is_weighed_with_the_layout_that_it_needs(together: float, kept: set[str]) -> None:
    """The layout by itself is slower, half precision gains a tenth, and both together gain more, or do not."""

    def seconds(profile: Mapping[str, Any]) -> float:
        half, last = "precision.bf16" in profile, "layout.channels_last" in profile
        return 0.05 / (together if half and last else 1.1 if half else 0.95 if last else 1.0)

    machine = Turning(seconds)
    machine.looks[""] = found("precision.bf16", "layout.channels_last")
    bench, report = take_first_look(Settings(("train.py",), Wishes(("numeric",))), machine, machine.report)
    search = Search(bench, machine.report, machine.in_turns)
    search.run(report)

    assert set(search.found.profile) == kept
    (turns,) = (one for one in machine.asked if one.arms)
    arms = dict(turns.arms)
    assert arms["layout.channels_last"] == {"precision.bf16": True, "layout.channels_last": True}
    assert arms["precision.bf16"] == {"precision.bf16": True}


@pytest.mark.parametrize(("gain", "is_told"), [(1.4, True), (1.07, False)])
def test_a_gain_that_is_more_than_luck_counts_all_the_same(gain: float, is_told: bool) -> None:
    """The machine is slower for some minutes, and faster again; what is kept in memory gains far more than that."""
    machine = Turning(lambda profile: 0.4 / (gain if "memory.keep" in profile else 1.0))
    bench = Bench(Settings(("train.py",)), machine, Sizes(10, 30, 60.0, 0.4, 2.0))
    keep = [Planned("memory.keep", True, "lossless", "", verbatim(""))]

    def lucky(trial: Trial) -> dict[str, Trial]:
        arms = machine.in_turns(trial)
        slower = tuple(1.1 * step_s for step_s in arms["as it is, again"].step_s)
        return {**arms, "as it is, again": replace(arms["as it is, again"], step_s=slower)}

    decision = Turns(bench, lucky).together(keep, {"memory.keep": True}, instead_of=60)

    assert any(one.arms for one in machine.asked)
    assert (decision is not None) is is_told
    if decision is not None:
        assert decision.judgement == "kept" and decision.gain is not None
        # Wider by what the two differ by.
        assert 1.15 < decision.gain.low < 1.35 and decision.gain.high > 1.5


def test_nothing_is_switched_in_what_was_recorded_once() -> None:
    machine = Turning(lambda profile: 0.05)
    bench = Bench(Settings(("train.py",)), machine, Sizes(10, 30, 5.0, 0.05, 2.0))
    able = [Planned(name, True, "numeric", name, verbatim("")) for name in ("precision.tf32", "cudnn.benchmark")]
    turns = Turns(bench, machine.in_turns)

    assert turns.switched(able, {"loader.workers": 2}) is not None
    assert turns.switched(able, {"graphs.model": True}) is None


@pytest.mark.parametrize(("step_s", "timed"), [(0.01, 8), (0.3, 5), (2.0, 4)])
def test_turns_of_slow_steps_are_shorter(step_s: float, timed: int) -> None:
    arms = build_arms(
        [Planned(name, True, "numeric", "", verbatim("")) for name in ("precision.tf32", "precision.bf16")]
    )

    # As it is, twice; each remedy; both together.
    assert count_timed_steps(step_s) == timed
    assert count_turn_steps(arms, warm_up=10, rounds=4, timed=timed) == 10 + 4 * (2 * (3 + timed) + 3 * (7 + timed)) + 1
