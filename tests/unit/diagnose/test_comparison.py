"""What two runs differ in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flatout.diagnose.comparison import compare_findings, compare_phases, compare_settings
from flatout.records.message import verbatim
from flatout.records.report import (
    Finding,
    Location,
    Overhead,
    PhaseShare,
    RemedyState,
    RunFacts,
    RunReport,
    Throughput,
    Verdict,
)

LOADER: dict[str, Any] = {"id": 1, "dataset": "data.Images", "num_workers": 0, "pin_memory": False, "line": 4}
REPORT = RunReport(
    run=RunFacts("a", ("train.py", "--lr", "0.1", "--amp", "conf.yaml"), 0, 100, 9.0, 1, "cpu", "2.11.0", "3.11.7"),
    throughput=Throughput(10.0, 320.0),
    phases={"data": PhaseShare(0.8, 80.0), "forward": PhaseShare(0.2, 20.0), "eval": PhaseShare(0.0, 0.0)},
    gpu=None,
    verdict=Verdict("input", False, verbatim("It waits.")),
    findings=(),
    overhead=Overhead(None, None),
    live={"torch": {"cudnn_benchmark": False, "compile_s": 1.0}, "loaders": [LOADER], "optimizers": []},
    environment={"host": "box", "git_commit": "abc", "variables": {"OMP_NUM_THREADS": "1"}},
)


def _with(argv: tuple[str, ...] = REPORT.run.argv, **more: Any) -> RunReport:
    return replace(REPORT, run=replace(REPORT.run, argv=argv), **more)


def _changes(after: RunReport) -> list[tuple[str, str, object, object]]:
    return [(change.group, change.name, change.before, change.after) for change in compare_settings(REPORT, after)]


def _finding(code: str, file: str | None = "train.py", line: int = 1) -> Finding:
    place = None if file is None else Location(file, line)
    return Finding(code, "input", f"{code}'s title", "medium", place, {}, verbatim("cause"), None, None, None)


def test_the_same_run_differs_in_nothing() -> None:
    assert _changes(REPORT) == []


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("train.py", "--lr", "0.2", "--amp", "conf.yaml"), [("command", "--lr", "0.1", "0.2")]),
        (("train.py", "--lr=0.2", "--amp", "conf.yaml"), [("command", "--lr", "0.1", "0.2")]),
        (("other.py", "--lr", "0.1", "--amp", "conf.yaml"), [("command", "word 1", "train.py", "other.py")]),
        (("train.py", "--lr", "0.1"), [("command", "--amp", "conf.yaml", None)]),
        (("train.py", "--lr", "0.1", "--amp", "conf.yaml", "--fast"), [("command", "--fast", None, True)]),
    ],
)
def test_options_are_compared_by_their_names(argv: tuple[str, ...], expected: list[Any]) -> None:
    assert _changes(_with(argv)) == expected


def test_living_settings_differ_by_object_and_name() -> None:
    workers = {**LOADER, "id": 7, "line": 9, "num_workers": 8}
    after = _with(live={"torch": {"cudnn_benchmark": True, "compile_s": 9.0}, "loaders": [workers], "optimizers": []})

    assert _changes(after) == [
        ("loader Images", "num_workers", 0, 8),
        ("torch", "cudnn_benchmark", False, True),
    ]


def test_an_object_that_only_one_has_is_one_difference() -> None:
    other = {**LOADER, "id": 2, "dataset": "data.Checks"}
    after = _with(live={**REPORT.live, "loaders": [LOADER, other]})

    assert _changes(after) == [("loader Checks", "", None, "there")]


def test_environment_versions_variables_and_remedies_are_compared() -> None:
    after = replace(
        _with(environment={"host": "box", "git_commit": "def", "variables": {}}),
        remedies=(RemedyState("loader.workers", "lossless", 8, "applied"),),
    )
    after = replace(after, run=replace(after.run, torch="2.13.0"))

    assert _changes(after) == [
        ("versions", "torch", "2.11.0", "2.13.0"),
        ("machine", "git_commit", "abc", "def"),
        ("variable", "OMP_NUM_THREADS", "1", None),
        ("remedy", "loader.workers", None, 8),
    ]


def test_zero_and_false_are_not_the_same() -> None:
    after = _with(live={**REPORT.live, "loaders": [{**LOADER, "pin_memory": 0}]})

    assert _changes(after) == [("loader Images", "pin_memory", False, 0)]


def test_phases_are_means_over_an_arm_and_told_of_a_sample_too() -> None:
    faster = _with(phases={"data": PhaseShare(0.5, 20.0), "forward": PhaseShare(0.5, 20.0)})
    fastest = _with(phases={"data": PhaseShare(0.3, 10.0), "forward": PhaseShare(0.7, 20.0)})

    data, forward = compare_phases([REPORT], [faster, fastest], (32.0, 64.0))

    assert (data.phase, data.ms) == ("data", (80.0, 15.0))
    assert data.share == (0.8, 0.4)
    assert data.us_per_sample == (2500.0, pytest.approx(234.375))
    assert forward.ms[0] == forward.ms[1]


def test_findings_gone_new_and_stayed_though_their_line_moved() -> None:
    before = _with(findings=(_finding("IN101", line=10), _finding("SY301", line=20), _finding("CA601", None)))
    after = _with(findings=(_finding("SY301", line=24), _finding("HO401"), _finding("CA601", None)))

    gone, new, stayed = compare_findings([before], [after])

    assert [finding.code for finding in gone] == ["IN101"]
    assert [finding.code for finding in new] == ["HO401"]
    assert [finding.code for finding in stayed] == ["SY301", "CA601"]


def test_of_two_findings_of_a_code_the_one_at_the_same_line_is_the_same() -> None:
    before = _with(findings=(_finding("SY301", line=20), _finding("SY301", line=30)))
    after = _with(findings=(_finding("SY301", line=30),))

    gone, new, _ = compare_findings([before], [after])

    assert [finding.location for finding in gone] == [Location("train.py", 20)]
    assert new == ()


def test_what_only_one_of_three_runs_shows_is_no_finding_of_the_arm() -> None:
    odd = _with(findings=(_finding("HO401"), _finding("IN101")))
    usual = _with(findings=(_finding("IN101"),))

    gone, new, stayed = compare_findings([odd, usual, usual], [usual])

    assert (gone, new) == ((), ())
    assert [finding.code for finding in stayed] == ["IN101"]
