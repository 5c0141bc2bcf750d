"""Which findings are shown: on a disturbed machine, and where the steps are too few to promise a gain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flatout.diagnose.findings import all_findings, drop_consequences, drop_covered, name_bound, rank_findings
from flatout.diagnose.verdict import Removable, judge_costs
from flatout.records.evidence import Evidence
from flatout.records.ledger import CallPath
from flatout.records.machine import MachineUse, NotRunning
from flatout.records.message import message, verbatim
from flatout.records.report import Finding, Gain, Location, Verdict
from flatout.words import english
from tests.cases.evidence import loader
from tests.unit.report.test_terminal import STARVED

WORK = Finding(
    "HO411", "host", "t", "high", None, {}, verbatim("c"), None, None, Gain(1.0, 1.2, 1.4, verbatim("model"))
)
SAMPLES = replace(WORK, code="IN118", family="input")
BOUND = Verdict("host", False, verbatim("Other work of the script takes 26% of each step."))


@pytest.mark.parametrize(
    ("taken", "workers", "shown"),
    [(0.02, 2, ["HO411", "IN118"]), (0.3, 2, ["HO411"]), (0.3, 0, ["HO411", "IN118"])],
)
def test_others_may_explain_late_batches_but_not_work_of_the_training_thread(
    taken: float, workers: int, shown: list[str]
) -> None:
    machine = MachineUse(
        2.0, 1.0, 1.0, training=NotRunning(taken, by_others=taken), disturbed=True, sentence=message("machine.training")
    )
    run = Evidence(replace(STARVED, machine=machine, findings=()), (loader(num_workers=workers),))

    assert [finding.code for finding in drop_covered(run, [WORK, SAMPLES])] == shown
    assert run.late_by_others == (taken if workers else None)


def test_a_bound_verdict_is_named_without_a_gain_where_the_steps_are_too_few() -> None:
    (named,) = name_bound((), (WORK, SAMPLES), BOUND)

    assert named == replace(WORK, predicted_gain=None)
    assert name_bound((SAMPLES,), (WORK,), BOUND) == (SAMPLES,)
    assert name_bound((), (WORK,), replace(BOUND, healthy=True)) == ()
    assert name_bound((), (WORK,), replace(BOUND, bound="compute")) == ()


def test_what_was_withheld_keeps_its_gain_for_a_trial() -> None:
    shown = name_bound((), (WORK, SAMPLES), BOUND)
    run = Evidence(replace(STARVED, findings=shown), withheld=(WORK, SAMPLES))

    assert all_findings(run) == (WORK, SAMPLES)


def test_a_known_cause_covers_a_general_one_at_its_place_unless_it_is_a_small_part_of_it() -> None:
    here = Location("train.py", 7)
    sync = replace(
        WORK, code="SY301", family="sync", location=here, predicted_gain=Gain(1.1, 1.15, 1.2, verbatim("model"))
    )
    small, large = (
        replace(WORK, location=here, predicted_gain=Gain(gain, gain, gain, verbatim("model"))) for gain in (1.3, 4.0)
    )
    run = Evidence(replace(STARVED, findings=()))

    assert drop_covered(run, [sync, small]) == [sync]
    assert drop_covered(run, [sync, large]) == [sync, large]


def test_a_known_cause_covers_what_its_line_calls() -> None:
    call, place = Location("train.py", 7), Location("metrics.py", 70)
    known = replace(WORK, code="CA606", family="cadence", location=call)
    general = replace(WORK, location=place)

    def run(ms: float) -> Evidence:
        ways = ((call, ms), (Location("train.py", 9), 5.0))
        paths = tuple(CallPath((way, place), ("fit", "score"), "other", ms, 1.0) for way, ms in ways)
        return Evidence(replace(STARVED, findings=()), call_paths=paths)

    assert drop_covered(run(10.0), [known, general]) == [known]
    assert drop_covered(run(2.0), [known, general]) == [known, general]


def test_a_cause_binds_only_beyond_what_the_step_time_is_uncertain_by() -> None:
    costs = Removable(input=0.13, transfer=0.0, sync=0.0, host=0.02, cadence=0.0)

    assert judge_costs(costs, 10.0, False).bound == "input"
    unsure = judge_costs(costs, 10.0, False, step_error=0.16)
    assert unsure.bound == "compute" and not unsure.healthy
    assert english(unsure.sentence) == (
        "The CPU computes for 85% of each 10 ms step; the training waits for data for 13% of each step (1.3 of 10 ms)."
    )


@pytest.mark.parametrize(("known", "first"), [(1.08, "HO412"), (1.3, "HO402"), (3.0, "HO402")])
def test_a_general_finding_stands_behind_a_known_cause_of_a_large_part_of_its_time(known: float, first: str) -> None:
    loop = replace(WORK, code="HO402", predicted_gain=Gain(known, known, known, verbatim("model")))
    rest = replace(
        WORK, code="HO412", evidence={"bound": "host"}, predicted_gain=Gain(2.0, 2.0, 2.0, verbatim("model"))
    )

    assert rank_findings([rest, loop])[0].code == first


def _gaining(code: str, mid: float, **changes: Any) -> Finding:
    return replace(WORK, code=code, family="input", predicted_gain=Gain(1.0, mid, mid, verbatim("model")), **changes)


def test_what_more_workers_hide_is_named_beside_them_as_long_as_a_good_part_still_shows() -> None:
    run = Evidence(replace(STARVED, findings=()))
    workers = _gaining("IN101", 1.5, remedy="loader.workers")

    assert drop_covered(run, [workers, _gaining("IN118", 3.0)]) == [workers, _gaining("IN118", 3.0)]
    assert drop_covered(run, [workers, _gaining("IN118", 1.6)]) == [workers]
    # A cache removes the cost.
    cache = _gaining("IN110", 1.5, remedy="loader.cache")
    assert drop_covered(run, [cache, _gaining("IN118", 3.0)]) == [cache]


@pytest.mark.parametrize(("removing", "hiding", "first"), [(1.50, 1.55, "IN107"), (1.50, 1.80, "IN101")])
def test_of_two_that_gain_alike_the_one_that_removes_the_cost_comes_first(
    removing: float, hiding: float, first: str
) -> None:
    found = [_gaining("IN101", hiding, remedy="loader.workers"), _gaining("IN107", removing)]

    assert rank_findings(found)[0].code == first


def test_a_loop_that_can_be_done_at_once_comes_before_workers_that_hide_it() -> None:
    workers = _gaining("IN101", 1.5, remedy="loader.workers")
    somewhere, loop = _gaining("IN118", 2.5), _gaining("IN118", 2.5, evidence={"loop_lines": "3-9"})

    assert [found.code for found in rank_findings([somewhere, workers])] == ["IN101", "IN118"]
    assert [found.code for found in rank_findings([workers, loop])] == ["IN118", "IN101"]


@pytest.mark.parametrize("code", ["CA605", "CO520"])
def test_output_or_a_growing_input_explains_the_loop_it_is_in_and_no_other(code: str) -> None:
    run = Evidence(replace(STARVED, findings=()))
    known = _gaining(code, 1.4, location=Location("train.py", 7))
    here, elsewhere = (_gaining("HO402", 1.4, location=Location("train.py", line)) for line in (6, 40))

    assert drop_consequences(run, [here, known]) == [known]
    assert drop_consequences(run, [elsewhere, known]) == [elsewhere, known]
