"""In which order remedies are tried: lossless ones first, the others by what they promise for their risk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.experiment.plan import Wishes, make_plan, switchable
from flatout.experiment.turns import build_arms
from flatout.records.fix import Planned
from flatout.records.message import verbatim
from flatout.records.report import Gain, RunReport
from flatout.remedies import catalogue
from flatout.words import english
from tests.unit.experiment.known_machine import found


def _report(**gains: float) -> RunReport:
    """Names with two underscores for the point."""
    report = found(*(name.replace("__", ".") for name in gains))
    predicted = [Gain(gain, gain, gain, verbatim("given")) for gain in gains.values()]
    return replace(
        report,
        findings=tuple(replace(one, predicted_gain=gain) for one, gain in zip(report.findings, predicted, strict=True)),
    )


def _order(report: RunReport) -> list[str]:
    wanted = {one.remedy for one in report.findings}
    plan = make_plan(report, Wishes(("numeric", "training")), (), {})
    return [one.id for one in plan.remedies if one.id in wanted]


@pytest.mark.parametrize(
    ("report", "order"),
    [
        (_report(sync__skip=1.02, optimizer__fused=1.3), ["sync.skip", "optimizer.fused"]),
        (_report(optimizer__fused=1.05, cadence__logging=1.5), ["cadence.logging", "optimizer.fused"]),
        (_report(optimizer__fused=1.1, cadence__logging=1.15), ["optimizer.fused", "cadence.logging"]),
    ],
)
def test_what_promises_most_for_its_risk_comes_first(report: RunReport, order: list[str]) -> None:
    assert _order(report) == order


def test_one_alone_takes_turns_with_the_script_as_it_is() -> None:
    throttle = catalogue.known()["cadence.throttle"]
    one = Planned(throttle.id, "viewer:draw=50", throttle.safety, throttle.title, verbatim("waits"))

    assert switchable([one]) == [one]
    assert [dict(profile) for _, profile in build_arms([one])] == [{}, {}, {"cadence.throttle": "viewer:draw=50"}]


def test_what_answers_a_finding_that_names_another_remedy_has_its_promise() -> None:
    report = found("compile.model", gain=1.3)
    report = replace(report, run=replace(report.run, device="GPU", exit_code=None))

    plan = make_plan(report, Wishes(allow=("numeric",)), (), {})

    (graphs,) = [one for one in plan.remedies if one.id == "graphs.model"]
    assert graphs.codes == ("HO401",) and graphs.predicted is not None and graphs.predicted.mid == 1.3


def test_a_remedy_that_takes_a_part_away_promises_no_more() -> None:
    """Half of the time is in checkpoints: a change of the source spares it all, but what is serialised stays."""
    (saves,) = make_plan(_report(checkpoint__async=2.0), Wishes(), (), {}).remedies

    assert saves.predicted is not None
    assert saves.predicted.low == pytest.approx(1 / (1 - 0.25 * 0.5)) and saves.predicted.high == 2.0
    assert saves.predicted.low < saves.predicted.mid < 1.5
    assert english(saves.predicted.method) == "given; from outside 25% to 60% of them go"
