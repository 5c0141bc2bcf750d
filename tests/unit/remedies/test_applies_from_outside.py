"""Which finding asks for which of the remedies that need no change of the script, and with what value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.problems.catalogue import problems
from flatout.records.message import verbatim
from flatout.records.report import Finding, Location, RunReport, Snippet, SyncSite
from flatout.remedies.catalogue import known
from flatout.words import english
from tests.cases import cases_of
from tests.cases.evidence import run

HERE = Location("train.py", 7)
NAMES = (
    "checkpoint.async", "transfer.async", "sync.skip", "gc.defer", "autograd.plain", "cadence.eval", "cadence.logging",
    "batch.size", "sync.defer",
)  # fmt: skip


def _report(remedy: str | None = None, **evidence: float | int | str) -> RunReport:
    report = run().report
    if remedy is None:
        return report
    (problem,) = [one for one in problems() if one.remedy == remedy][:1]
    finding = Finding(
        problem.code, "x", problem.title, "high", HERE, evidence, verbatim("the cause"), remedy, None, None
    )
    return replace(report, findings=(finding,))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_without_the_finding_needs_nothing(name: str) -> None:
    answer = known()[name].applies(_report())

    assert not answer.is_yes and answer.why


@pytest.mark.parametrize("name", NAMES[:-1])
def test_what_it_answers_can_be_applied(name: str) -> None:
    answer = known()[name].applies(_report(name, interval_times=20))

    assert answer.is_yes
    assert known()[name].value.read(answer.value) == answer.value


def test_the_interval_is_the_findings() -> None:
    assert known()["cadence.eval"].applies(_report("cadence.eval", interval_times=20)).value["every"] == 20
    assert known()["cadence.logging"].applies(_report("cadence.logging", interval_times=50)).value == 50


@pytest.mark.parametrize(
    ("text", "helps"),
    [
        ('writer.add_scalar("loss", loss, step)', True),
        ('writer.add_scalar("loss", loss.item(), step)', False),
        ("total += loss.item()", False),
    ],
)
def test_results_are_deferred_only_where_a_logger_reads_them(text: str, helps: bool) -> None:
    report = replace(
        _report("sync.defer"), syncs=(SyncSite(HERE, "train", "item", 1.0, 5.0),), snippets=(Snippet(HERE, text),)
    )

    assert known()["sync.defer"].applies(report).is_yes is helps


def test_only_a_person_names_a_function() -> None:
    assert not known()["cadence.throttle"].applies(_report()).is_yes


@pytest.mark.parametrize(("of", "workers"), [("reach a starved GPU", 2), ("the call says 2", None)])
def test_workers_that_were_configured_and_never_arrived_are_brought_where_they_are_wanting(
    of: str, workers: int | None
) -> None:
    (problem,) = (one for one in problems() if one.code == "CF801")
    (case,) = (case for case in cases_of(problem).runs if of in case.name)
    report = replace(case.run.report, findings=tuple(problem.found_in_run(case.run)))

    answer = known()["loader.workers"].applies(report)

    assert answer.value == workers
    assert "num_workers is configured as" in english(report.findings[0].cause)
