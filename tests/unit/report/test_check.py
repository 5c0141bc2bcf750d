"""Findings in source in all forms, from one made-up report."""

from __future__ import annotations

import json

from flatout.records.message import verbatim
from flatout.records.source import SYNTAX, CheckReport, Place, Related, SourceFinding
from flatout.report.check import render_concise, render_full, render_github, render_statistics, to_json
from flatout.report.sarif import check_sarif

WAIT = SourceFinding(
    code="SY301",
    family="sync",
    title="GPU sync in every step",
    severity="medium",
    place=Place("src/a b.py", 12, 10, 12, 21),
    cause=verbatim("reading `loss` waits: 100% of it"),
    change=verbatim("keep it on the device"),
    related=(Related(Place("src/main.py", 3, 5), verbatim("calls step")),),
)
CELL = SourceFinding(
    "IN101",
    "input",
    "Batches are made",
    "low",
    Place("n.ipynb", 2, 1, 3, 4, cell=7),
    verbatim("no workers"),
    verbatim("num_workers=4"),
)
BROKEN = SourceFinding(
    SYNTAX, "check", "The file is no Python", "error", Place("x.py", 1, 7), verbatim("invalid syntax"), None
)
REPORT = CheckReport(
    findings=(CELL, WAIT, BROKEN),
    files=3,
    lines={
        ("src/a b.py", None, 12): "\ttotal += loss.item()",
        ("n.ipynb", 7, 2): "loader = DataLoader(",
        ("x.py", None, 1): "def f(:",
    },
    trouble=(verbatim("y.py: holds null bytes"),),
)

FULL = """\
n.ipynb:cell 7:2:1: IN101 Batches are made
 2 | loader = DataLoader(
   | ^^^^^^^^^^^^^^^^^^^^
   = no workers
   = help: num_workers=4

src/a b.py:12:10: SY301 GPU sync in every step
 12 |     total += loss.item()
    |             ^^^^^^^^^^^
    = reading `loss` waits: 100% of it
    = help: keep it on the device
    = src/main.py:3:5: calls step

x.py:1:7: invalid-syntax The file is no Python
 1 | def f(:
   |       ^
   = invalid syntax

2 findings and 1 file that cannot be parsed in 3 files. Run `flatout explain CODE` for details.
"""


def test_full_points_at_the_place() -> None:
    assert render_full(REPORT, color=False, unicode=True) == FULL


def test_colour_changes_nothing_but_colour() -> None:
    import re

    colored = render_full(REPORT, color=True, unicode=True)

    assert "\x1b[" in colored and re.sub(r"\x1b\[[\d;]*m", "", colored) == FULL


def test_concise_has_a_line_each() -> None:
    lines = render_concise(REPORT, color=False, unicode=True).splitlines()

    assert lines[1] == ("src/a b.py:12:10: SY301 GPU sync in every step: reading `loss` waits: 100% of it")
    assert len(lines) == 4


def test_statistics_count_by_code() -> None:
    report = CheckReport((WAIT, CELL, WAIT), 2)

    lines = render_statistics(report, color=False, unicode=True).splitlines()

    assert lines[0].split()[:2] == ["2", "SY301"] and lines[1].split()[:2] == ["1", "IN101"]


def test_nothing_found_is_said() -> None:
    assert render_full(CheckReport((), 1), color=False, unicode=True) == "Nothing found in 1 file.\n"


def test_json_holds_everything() -> None:
    read = json.loads(to_json(REPORT))

    assert read["schema"] == 1 and read["files"] == 3 and read["trouble"] == ["y.py: holds null bytes"]
    cell, wait, broken = read["findings"]
    assert cell["location"]["cell"] == 7 and "cell" not in wait["location"]
    assert wait["location"] == {"file": "src/a b.py", "line": 12, "column": 10, "end_line": 12, "end_column": 21}
    assert wait["related"] == [{"location": {"file": "src/main.py", "line": 3, "column": 5}, "words": "calls step"}]
    assert broken["severity"] == "error" and broken["change"] is None


def test_github_commands_are_escaped() -> None:
    lines = render_github(REPORT).splitlines()

    assert lines[1] == (
        "::warning file=src/a b.py,line=12,col=10,title=SY301 GPU sync in every step,endLine=12"
        "::reading `loss` waits: 100%25 of it%0Ahelp: keep it on the device"
    )
    assert lines[0].startswith("::notice ") and lines[2].startswith("::error ")


def test_sarif_names_its_rules_and_places() -> None:
    read = json.loads(check_sarif(REPORT, "1.2", {"SY301": "What it is.\n\nMore."}))

    assert read["version"] == "2.1.0"
    (run,) = read["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == ["IN101", "SY301", SYNTAX]
    result = run["results"][1]
    assert rules[result["ruleIndex"]] == result["ruleId"] == "SY301" and result["level"] == "warning"
    physical = result["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == "src/a%20b.py"
    assert physical["region"] == {"startLine": 12, "startColumn": 10, "endLine": 12, "endColumn": 21}
    assert result["relatedLocations"][0]["message"]["text"] == "calls step"
    assert run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"] == "y.py: holds null bytes"
