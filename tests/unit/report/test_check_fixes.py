"""Findings that can be fixed, in all forms: marks, edits, replacements and the diff."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from flatout.records.message import verbatim
from flatout.records.source import CheckReport, Edit, Fix, Place, SourceFinding
from flatout.report.check import render_concise, render_diff, render_full, render_outlook, to_json
from flatout.report.sarif import check_sarif

PIN = SourceFinding(
    code="TR201",
    family="transfer",
    title="Batches are copied",
    severity="medium",
    place=Place("a b.py", 4, 1, 4, 20),
    cause=verbatim("not pinned"),
    change=verbatim("pin_memory=True"),
    fix=Fix(
        verbatim("pin_memory=True"),
        (Edit(Place("a b.py", 4, 19), ", pin_memory=True"), Edit(Place("c.yaml", 2, 3, 2, 4), "4")),
        is_safe=True,
    ),
)
DROP = replace(
    PIN, code="HO404", fix=Fix(verbatim("the call deleted"), (Edit(Place("a b.py", 9, 1, 10, 1), ""),), is_safe=False)
)
NONE = replace(PIN, code="SY304", fix=None)
REPORT = CheckReport((PIN, DROP, NONE), 3)


def test_marks_tell_what_can_be_fixed() -> None:
    lines = render_concise(REPORT, color=False, unicode=True).splitlines()

    assert [line.split(": ")[1] for line in lines[:3]] == [
        "TR201 [*] Batches are copied",
        "HO404 [~] Batches are copied",
        "SY304 Batches are copied",
    ]
    assert lines[-1] == "[*] 1 fixable with --fix, [~] 1 more with --fix --unsafe-fixes."
    assert "   = fix [*]: pin_memory=True\n" in render_full(REPORT, color=False, unicode=True)


def test_what_was_fixed_is_said() -> None:
    done = CheckReport((), 3, fixed=2, fixed_files=1)

    assert render_full(done, color=False, unicode=True) == "2 fixed in 1 file.\nNothing left in 3 files.\n"
    assert json.loads(to_json(done))["fixed"] == {"findings": 2, "files": 1}


def test_json_holds_the_edits() -> None:
    pin, drop, none = json.loads(to_json(REPORT))["findings"]

    assert none["fix"] is None and drop["fix"]["safe"] is False
    assert pin["fix"] == {
        "safe": True,
        "words": "pin_memory=True",
        "edits": [
            {"location": {"file": "a b.py", "line": 4, "column": 19}, "text": ", pin_memory=True"},
            {"location": {"file": "c.yaml", "line": 2, "column": 3, "end_line": 2, "end_column": 4}, "text": "4"},
        ],
    }


def test_sarif_holds_replacements_by_file() -> None:
    pin, drop, none = json.loads(check_sarif(REPORT, "1", {}))["runs"][0]["results"]

    assert "fixes" not in none
    (fix,) = pin["fixes"]
    assert fix["description"] == {"text": "pin_memory=True"}
    assert [one["artifactLocation"]["uri"] for one in fix["artifactChanges"]] == ["a%20b.py", "c.yaml"]
    (put_in,) = fix["artifactChanges"][0]["replacements"]
    # What is only put in deletes nothing: its region is empty.
    assert put_in["deletedRegion"] == {"startLine": 4, "startColumn": 19, "endLine": 4, "endColumn": 19}
    assert put_in["insertedContent"] == {"text": ", pin_memory=True"}
    (out,) = drop["fixes"][0]["artifactChanges"][0]["replacements"]
    assert out["deletedRegion"] == {"startLine": 9, "startColumn": 1, "endLine": 10, "endColumn": 1}


def test_sarif_leaves_out_what_counts_in_a_cell() -> None:
    cell = Fix(verbatim("x"), (Edit(Place("n.ipynb", 1, 1, 1, 2, cell=3), "x"),), is_safe=True)

    (result,) = json.loads(check_sarif(CheckReport((replace(PIN, fix=cell),), 1), "1", {}))["runs"][0]["results"]

    assert "fixes" not in result


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (b"a\r\nb\r\n", b"a\r\nc\r\n", b"--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n"),
        (
            b"\xe9\nb",
            b"\xe9\nc",
            b"--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n \xe9\n-b\n\\ No newline at end of file\n"
            b"+c\n\\ No newline at end of file\n",
        ),
    ],
)
def test_a_diff_holds_the_bytes(before: bytes, after: bytes, shown: bytes) -> None:
    assert render_diff({"x.py": before, "y.py": b""}, {"x.py": after}, color=False) == shown
    assert render_diff({"x.py": before}, {}, color=False) == b""


def test_a_name_with_a_blank_ends_in_a_tab() -> None:
    assert render_diff({"./a b.py": b"1\n"}, {"./a b.py": b"2\n"}, color=False).startswith(
        b"--- a/a b.py\t\n+++ b/a b.py\t\n"
    )


def test_the_outlook_lists_what_stays() -> None:
    assert render_outlook(REPORT.findings, 1, 1, unsafe=False).splitlines() == [
        "1 would be fixed in 1 file.",
        "Fixed only with --unsafe-fixes, which may change what the script computes or prints:",
        "  a b.py:4:1: HO404 Batches are copied",
        "To be fixed by hand:",
        "  a b.py:4:1: SY304 Batches are copied",
    ]
    assert "Only with" not in render_outlook(REPORT.findings, 2, 1, unsafe=True)
