"""What a run measured of a finding in source, as all forms say it, and the source's part on a run's page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flatout.records.message import verbatim
from flatout.records.report import Finding, Location, RelatedLine, Snippet, SourceSide, Unmeasured
from flatout.records.source import CheckReport, Measured, MeasuredRun, Place, SourceFinding
from flatout.report import check
from flatout.report import json as run_json
from flatout.report.check import measured_in_short, measured_in_words
from flatout.report.layout import Look
from flatout.report.sarif import check_sarif
from flatout.report.terminal import render
from tests.cases.evidence import run

RUN = MeasuredRun("r1", 48.0, "cpu")
COSTS = Measured("costs", 3.1, 3.1 / 48.0)


@pytest.mark.parametrize(
    ("measured", "short", "words"),
    [
        (COSTS, "3.10 ms of 48.0 ms per step", "3.10 ms of 48.0 ms per step (6%)"),
        (
            Measured("free", 0.02, 0.0004, verbatim("hidden")),
            "free: 20 µs of 48.0 ms per step",
            "free in this run, 20 µs of 48.0 ms per step: hidden",
        ),
        (Measured("not_reached"), "not reached", "not reached in this run"),
        (Measured("not_measured", words=verbatim("no GPU")), "not measured", "not measured in this run: no GPU"),
        (Measured("costs", words=verbatim("memory grows")), "costs something, not in time", "memory grows"),
    ],
)
def test_each_state_has_its_words(measured: Measured, short: str, words: str) -> None:
    assert measured_in_short(measured, RUN) == short
    assert measured_in_words(measured, RUN) == words


def test_without_a_run_nothing_of_it_is_said() -> None:
    finding = SourceFinding("SY301", "sync", "T", "medium", Place("a.py", 3, 1), verbatim("why"), verbatim("help"))
    report = CheckReport((finding,), 1)

    assert "measured" not in check.render_full(report, color=False, unicode=True)
    assert "measured" not in check.to_json(report) + check.render_github(report) + check_sarif(report, "1", {})

    joined = replace(report, run=RUN, findings=(replace(finding, measured=COSTS),))
    assert " = measured: 3.10 ms" in check.render_full(joined, color=False, unicode=True)
    assert json.loads(check.to_json(joined))["findings"][0]["measured"] == {
        "state": "costs",
        "ms_per_step": 3.1,
        "share": 0.0645833,
        "words": "",
    }


FINDING = Finding(
    "IN101", "input", "Batches are made in it", "high", Location("data.py", 17), {}, verbatim("c"), None,
    verbatim("more"), None,
    related=(RelatedLine(Location("options.py", 5), verbatim("the default of --num-workers is 0")),),
    fix="flatout check --fix --select IN101 .",
)  # fmt: skip
SIDE = SourceSide(2, 1, (Unmeasured("SY301", "The host waits", Location("train.py", 21)),), "train.py")


def test_the_page_says_where_a_value_is_written_and_what_was_not_measured() -> None:
    report = replace(run().report, findings=(FINDING,), source=SIDE)

    lines = render(report, Look(cwd=Path("/"), width=100)).splitlines()

    at = next(number for number, line in enumerate(lines) if "IN101" in line)
    assert [line.strip() for line in lines[at + 1 : at + 5]] == [
        "→ more",
        "options.py:5: the default of --num-workers is 0",
        "or: flatout check --fix --select IN101 .",
        "1 more thing in the source not measured by this run: flatout check train.py",
    ]
    assert any("SY301" in line and "train.py:21" in line for line in render(report, Look(verbose=True)).splitlines())


def test_a_fix_that_may_change_results_is_shown_on_request() -> None:
    unsafe = replace(FINDING, fix="flatout check --fix --unsafe-fixes --select IN101 .")
    report = replace(run().report, findings=(unsafe,))

    assert "--unsafe-fixes" not in render(report)
    assert "or: flatout check --fix --unsafe-fixes --select IN101 ." in render(report, Look(verbose=True))


def test_a_page_without_any_of_it_is_as_it_was() -> None:
    report = run().report

    assert render(replace(report, source=SourceSide(3, 2, (), ""))) == render(report)


def test_it_survives_as_json() -> None:
    snippets = (Snippet(Location("train.py", 3), "x = 1"),)
    report = replace(run().report, findings=(FINDING,), source=SIDE, snippets=snippets)

    assert run_json.from_json(json.loads(json.dumps(run_json.to_json(report)))) == report
