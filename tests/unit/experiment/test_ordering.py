"""In which order remedies are tried, and what is tried together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from flatout.experiment.bench import Settings, take_first_look
from flatout.experiment.plan import Wishes, finest_first, worth_its_rounding
from flatout.experiment.request import Request
from flatout.experiment.search import Search
from flatout.records.fix import Planned
from flatout.records.message import verbatim
from flatout.records.report import GpuUse, RunReport
from flatout.records.trial import Trial
from flatout.words import english
from tests.cases.evidence import phases
from tests.unit.experiment.known_machine import Turning, found, on_gpu

_PRECISIONS = [Planned(name, True, "numeric", "", verbatim("")) for name in ("precision.bf16", "precision.tf32")]
_FUSED = Planned("optimizer.fused", True, "numeric", "", verbatim(""))


def _launching() -> RunReport:
    """The device waits for the host, which launches all the time; its products are in float32."""
    gpu, took = GpuUse(busy_share=0.7, sm_active=0.3), phases(forward=40, backward=50, optimizer=10)
    return replace(on_gpu("precision.tf32"), gpu=gpu, phases=took)


def _searched(machine: Turning, look: RunReport) -> Search:
    machine.looks[""] = look
    settings = Settings(("train.py",), Wishes(("numeric",), without=("precision.bf16",)))
    bench, report = take_first_look(settings, machine, machine.report)
    search = Search(bench, machine.report, machine.in_turns)
    search.run(report)
    return search


def test_what_was_not_sure_to_help_launching_is_tried_again_with_what_it_may_help() -> None:
    """Graphs gain 5%, and TF32 4% without them, less than what processes differ by; together it is 20%."""

    def seconds(profile: Mapping[str, Any]) -> float:
        gains = {(): 1.0, ("graphs.model",): 1.05, ("precision.tf32",): 1.04}
        return 0.3 / gains.get(tuple(sorted(profile)), 1.2)

    machine = Turning(seconds, noise=0.03)
    search = _searched(machine, _launching())

    assert set(search.found.profile) == {"graphs.model", "precision.tf32"}
    kept = {one.planned.id: one for one in search.found.tried}
    assert kept["graphs.model"].together == ("precision.tf32",)
    assert english(kept["precision.tf32"].why).endswith(", together with graphs.model")
    assert kept["graphs.model"].gain == kept["precision.tf32"].gain
    arms = [one.arm for one in machine.asked]
    assert arms.count("graphs.model") == 1 and "precision.tf32" not in arms


def test_where_nothing_comes_of_that_it_has_its_trials_by_itself() -> None:
    """Graphs gain 6%, and TF32 takes all of it away."""

    def seconds(profile: Mapping[str, Any]) -> float:
        return 0.3 / (1.06 if set(profile) == {"graphs.model"} else 1.0)

    machine = Turning(seconds, noise=0.03)
    search = _searched(machine, _launching())

    assert set(search.found.profile) == {"graphs.model"}
    (graphs,) = (one for one in search.found.tried if one.planned.id == "graphs.model")
    assert not graphs.together and graphs.gain is not None and 1.03 < graphs.gain.mid < 1.1


def test_where_they_do_not_go_together_each_is_tried_by_itself() -> None:
    class Breaking(Turning):
        def __call__(self, request: Request) -> Trial:
            trial = super().__call__(request)
            return replace(trial, ending="crashed", step_s=()) if len(request.remedies) == 2 else trial

    gains = {"graphs.model": 1.05, "precision.tf32": 1.3}
    machine = Breaking(lambda profile: 0.3 / max((gains[name] for name in profile), default=1.0), noise=0.03)
    search = _searched(machine, _launching())

    assert set(search.found.profile) == {"precision.tf32"}
    (graphs,) = (one for one in search.found.tried if one.planned.id == "graphs.model")
    assert graphs.state == "neutral" and graphs.gain is not None


def test_what_is_doubtful_keeps_its_figure_where_no_time_is_left() -> None:
    gains = {"graphs.model": 1.1, "precision.tf32": 1.0}
    machine = Turning(lambda profile: 0.3 / math.prod(gains[name] for name in profile), noise=0.03)
    machine.looks[""] = _launching()
    now_s = [0.0]

    def make(request: Request) -> Trial:
        trial = machine(request)
        # Nothing but the first trial of graphs fits in.
        now_s[0] += 1000.0 if "graphs.model" in request.remedies else 1.0
        return trial

    settings = Settings(("train.py",), Wishes(("numeric",), without=("precision.bf16",)), budget_s=900.0)
    bench, report = take_first_look(settings, make, machine.report, lambda: now_s[0])
    search = Search(bench, machine.report, machine.in_turns)
    search.run(report)

    tried = {one.planned.id: one for one in search.found.tried}
    assert tried["graphs.model"].state == "neutral" and tried["graphs.model"].gain is not None
    assert tried["precision.tf32"].state == "not measured"


def test_a_large_gain_over_what_was_seen_once_is_worth_one_more_of_that_and_no_turns() -> None:
    def seconds(profile: Mapping[str, Any]) -> float:
        return (0.2 if "loader.prefetch" in profile else 0.8) / (1.27 if "memory.keep" in profile else 1.0)

    machine = Turning(seconds, noise=lambda profile: 0.02 if profile else 0.2)
    machine.looks["loader.prefetch"] = found("memory.keep", gain=1.17)
    search = _searched(machine, found("loader.prefetch", gain=2.0))

    assert set(search.found.profile) == {"loader.prefetch", "memory.keep"}
    arms = [one.arm for one in machine.asked]
    assert "remedies in turns" not in arms
    assert arms.count("memory.keep") == 2 and arms.count("loader.prefetch") == arms.count("kept so far") == 1


@pytest.mark.parametrize(("gain", "kept"), [(1.22, {"precision.tf32"}), (1.5, {"precision.tf32", "precision.bf16"})])
def test_a_coarser_rounding_has_to_gain_more_than_a_finer_one(gain: float, kept: set[str]) -> None:
    def seconds(profile: Mapping[str, Any]) -> float:
        return 0.05 / (gain if "precision.bf16" in profile else 1.2 if "precision.tf32" in profile else 1.0)

    machine = Turning(seconds)
    machine.looks[""] = on_gpu("precision.tf32")
    bench, report = take_first_look(Settings(("train.py",), Wishes(("numeric",))), machine, machine.report)
    search = Search(bench, machine.report, machine.in_turns)
    search.run(report)

    assert set(search.found.profile) == kept


def test_of_two_roundings_the_finer_one_comes_first() -> None:
    bf16, tf32 = _PRECISIONS

    assert finest_first([bf16, _FUSED, tf32]) == [_FUSED, tf32, bf16]
    gains = {bf16.id: 1.2, tf32.id: 1.18, _FUSED.id: 1.02}
    assert worth_its_rounding([bf16, tf32, _FUSED], lambda one: gains[one.id]) == [tf32, _FUSED]
    assert worth_its_rounding([bf16, _FUSED], lambda one: gains[one.id]) == [bf16, _FUSED]
