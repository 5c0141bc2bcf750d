"""What is written as SARIF is SARIF."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from flatout.records.message import verbatim
from flatout.records.report import (
    Finding,
    Gain,
    Location,
    Overhead,
    RelatedLine,
    RunFacts,
    RunReport,
    Throughput,
    Verdict,
)
from flatout.records.source import SYNTAX, CheckReport, Edit, Fix, Measured, Place, Related, SourceFinding
from flatout.report.sarif import check_sarif, run_sarif
from tests.sarif_rules import broken_rules

HERE = Place("src/a b.py", 12, 10, 12, 21)
FINDINGS = (
    SourceFinding(
        code="SY301",
        family="sync",
        title="The host waits",
        severity="medium",
        place=HERE,
        cause=verbatim("reading `loss` waits"),
        change=verbatim("keep it on the device"),
        related=(Related(Place("src/main.py", 3, 5), verbatim("calls step")),),
        fix=Fix(
            verbatim("summed on the device"),
            (Edit(HERE, "loss.detach()"), Edit(Place("b.py", 1, 1, 1, 1), "x\n")),
            False,
        ),
        measured=Measured("costs", 12.0, 0.3, verbatim("of the line")),
    ),
    SourceFinding(
        "IN101",
        "input",
        "No workers",
        "low",
        Place("n.ipynb", 2, 1, 3, 4, cell=7),
        verbatim("none"),
        verbatim("num_workers=4"),
    ),
    SourceFinding(
        SYNTAX, "check", "The file is no Python", "error", Place("x.py", 1, 7), verbatim("invalid syntax"), None
    ),
    SourceFinding(
        "CO509",
        "compute",
        "Not compiled",
        "hint",
        Place("x.py", 3, 1),
        verbatim("nothing is compiled"),
        verbatim("compile it"),
    ),
)
OF_RUN = RunReport(
    run=RunFacts("a1", ("train.py",), 0, 100, 9.0, 1, "cpu", "2.11.0", "3.11.7"),
    throughput=Throughput(10.0, 320.0),
    phases={},
    gpu=None,
    verdict=Verdict("input", False, verbatim("It waits.")),
    findings=(
        Finding(
            code="IN101",
            family="input",
            title="No workers",
            severity="medium",
            location=Location("/proj/src/a b.py", 13),
            evidence={"data_ms": 4.2, "num_workers": 0},
            cause=verbatim("4.2 of 5 ms"),
            remedy="loader.workers",
            change=verbatim("num_workers=2"),
            predicted_gain=Gain(1.0, 1.5, 2.0, verbatim("by the slowest")),
            related=(RelatedLine(Location("/proj/conf.yaml", 2), verbatim("where it is written")),),
        ),
        Finding("ME701", "memory", "Nearly full", "high", None, {}, verbatim("97% used"), None, None, None),
    ),
    overhead=Overhead(None, None),
)
REPORTS: dict[str, CheckReport | RunReport] = {
    "run": OF_RUN,
    "findings": CheckReport(FINDINGS, files=4, lines={}, trouble=(verbatim("y.py: holds null bytes"),)),
    "nothing": CheckReport((), files=0, lines={}),
}


def written(name: str) -> dict[str, Any]:
    report, texts = REPORTS[name], {"SY301": "What it is.\n\nMore."}
    text = (
        run_sarif(report, "/proj", "1.2", texts) if isinstance(report, RunReport) else check_sarif(report, "1.2", texts)
    )
    read: dict[str, Any] = json.loads(text)
    return read


@pytest.mark.parametrize("name", REPORTS)
def test_it_keeps_to_the_rules(name: str) -> None:
    assert broken_rules(written(name)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), "2.0.0"),
        (("runs",), []),
        (("more",), 1),
        (("runs", 0, "columnKind"), "bytes"),
        (("runs", 0, "tool", "driver", "rules", 0, "id"), ""),
        (("runs", 0, "tool", "driver", "rules", 1, "id"), "SY301"),
        (("runs", 0, "results", 0, "level"), "medium"),
        (("runs", 0, "results", 0, "message"), {}),
        (("runs", 0, "results", 0, "ruleIndex"), 1),
        (("runs", 0, "results", 0, "rank"), 101),
        (("runs", 0, "results", 0, "locations", 0, "physicalLocation", "region", "startLine"), 0),
        (("runs", 0, "results", 0, "locations", 0, "physicalLocation", "region", "endLine"), 1),
        (("runs", 0, "results", 0, "locations", 0, "physicalLocation", "artifactLocation", "uri"), "/src/a.py"),
        (("runs", 0, "results", 0, "locations", 0, "physicalLocation", "artifactLocation", "uri"), "a b.py"),
        (("runs", 0, "results", 0, "fixes", 0, "artifactChanges"), []),
        (("runs", 0, "invocations", 0, "executionSuccessful"), "yes"),
    ],
)
def test_the_rules_can_be_broken(path: tuple[str | int, ...], value: object) -> None:
    log = written("findings")
    part: Any = log
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value

    assert broken_rules(log) != []


def test_a_place_outside_the_project_has_a_scheme() -> None:
    (first, *_) = OF_RUN.findings
    elsewhere = replace(first, location=Location("/opt/a lib/x.py", 3))

    log = json.loads(run_sarif(replace(OF_RUN, findings=(elsewhere,)), "/proj", "1.2", {}))

    place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert broken_rules(log) == [] and place["artifactLocation"]["uri"] == "file:///opt/a%20lib/x.py"


def test_a_finding_of_a_run_tells_its_evidence_and_one_without_a_place_is_a_notification() -> None:
    (run,) = written("run")["runs"]

    (result,) = run["results"]
    assert result["ruleId"] == "IN101" and "num_workers=2" in result["message"]["text"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 13
    assert result["relatedLocations"][0]["message"]["text"] == "where it is written"
    assert result["properties"]["evidence"] == {"data_ms": 4.2, "num_workers": 0}
    assert result["properties"]["predicted_gain"]["mid"] == 1.5
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"].startswith("ME701 Nearly full: 97% used")
