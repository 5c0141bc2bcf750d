"""What is written as SARIF is SARIF: by the schema where it is at hand, and by what the schema asks for where not."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flatout.records.source import SYNTAX, CheckReport, Edit, Fix, Measured, Place, Related, SourceFinding
from flatout.report.sarif import sarif

# The schema of OASIS, as the source distribution of sarif-pydantic has it, for example.
SCHEMA = "SARIF_SCHEMA"
HERE = Place("src/a b.py", 12, 10, 12, 21)
FINDINGS = (
    SourceFinding(
        code="SY301",
        family="sync",
        title="The host waits",
        severity="medium",
        place=HERE,
        cause="reading `loss` waits",
        change="keep it on the device",
        related=(Related(Place("src/main.py", 3, 5), "calls step"),),
        fix=Fix("summed on the device", (Edit(HERE, "loss.detach()"), Edit(Place("b.py", 1, 1, 1, 1), "x\n")), False),
        measured=Measured("costs", 12.0, 0.3, "of the line"),
    ),
    SourceFinding("IN101", "input", "No workers", "low", Place("n.ipynb", 2, 1, 3, 4, cell=7), "none", "num_workers=4"),
    SourceFinding(SYNTAX, "check", "The file is no Python", "error", Place("x.py", 1, 7), "invalid syntax", None),
    SourceFinding("CO509", "compute", "Not compiled", "hint", Place("x.py", 3, 1), "nothing is compiled", "compile it"),
)
REPORTS = {
    "findings": CheckReport(FINDINGS, files=4, lines={}, trouble=("y.py: holds null bytes",)),
    "nothing": CheckReport((), files=0, lines={}),
}
# What must be there, what else may be, and which words are known, as far as it is written here.
REQUIRED = {
    "log": ("version", "runs"),
    "run": ("tool",),
    "result": ("message",),
    "rule": ("id",),
    "fix": ("artifactChanges",),
    "change": ("artifactLocation", "replacements"),
    "replacement": ("deletedRegion",),
    "invocation": ("executionSuccessful",),
    "notification": ("message",),
}
ALLOWED = {
    "log": {"$schema", "version", "runs"},
    "run": {"tool", "results", "invocations", "columnKind"},
    "result": {
        "ruleId", "ruleIndex", "level", "message", "locations", "relatedLocations", "fixes", "properties", "rank",
    },
    "rule": {"id", "shortDescription", "fullDescription", "help", "properties"},
    "fix": {"description", "artifactChanges"},
    "change": {"artifactLocation", "replacements"},
    "replacement": {"deletedRegion", "insertedContent"},
    "invocation": {"executionSuccessful", "toolExecutionNotifications"},
    "notification": {"message", "level"},
}  # fmt: skip
LEVELS = {"none", "note", "warning", "error"}


def parts(log: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of the log that the schema has a name for."""
    yield "log", log
    for run in log["runs"]:
        yield "run", run
        yield from (("rule", rule) for rule in run["tool"]["driver"]["rules"])
        for invocation in run.get("invocations", ()):
            yield "invocation", invocation
            yield from (("notification", note) for note in invocation["toolExecutionNotifications"])
        for result in run["results"]:
            yield "result", result
            for fix in result.get("fixes", ()):
                yield "fix", fix
                for change in fix["artifactChanges"]:
                    yield "change", change
                    yield from (("replacement", one) for one in change["replacements"])


def regions(log: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for kind, part in parts(log):
        if kind == "result":
            places = [*part["locations"], *part.get("relatedLocations", ())]
            yield from (place["physicalLocation"]["region"] for place in places)
        elif kind == "replacement":
            yield part["deletedRegion"]


def written(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(sarif(REPORTS[name], "1.2", {"SY301": "What it is.\n\nMore."}))
    return read


@pytest.mark.parametrize("name", REPORTS)
def test_it_has_what_the_schema_asks_for_and_nothing_else(name: str) -> None:
    log = written(name)

    assert log["version"] == "2.1.0" and log["runs"]
    for kind, part in parts(log):
        assert set(REQUIRED[kind]) <= set(part), kind
        assert set(part) <= ALLOWED[kind], kind
    for run in log["runs"]:
        driver = run["tool"]["driver"]
        ids = [rule["id"] for rule in driver["rules"]]
        assert driver["name"] and len(ids) == len(set(ids))
        assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
        for result in run["results"]:
            assert result["message"]["text"] and result["level"] in LEVELS
            assert ids[result["ruleIndex"]] == result["ruleId"]
            assert -1.0 <= result.get("rank", -1.0) <= 100.0


def test_its_lines_and_columns_begin_at_one_and_its_paths_are_relative() -> None:
    log = written("findings")

    for region in regions(log):
        assert all(isinstance(value, int) and value >= 1 for value in region.values())
        assert region["startLine"] <= region.get("endLine", region["startLine"])
    text = json.dumps(log)
    uris = [part.split('"')[0] for part in text.split('"uri": "')[1:]]
    assert uris and not any(uri.startswith("/") or " " in uri or "\\" in uri for uri in uris)


@pytest.mark.parametrize("name", REPORTS)
def test_the_schema_itself_has_nothing_against_it(name: str) -> None:
    place = os.environ.get(SCHEMA, "")
    if not place or not Path(place).is_file():
        pytest.skip(f"{SCHEMA} names no file with the SARIF 2.1.0 schema")
    try:
        jsonschema = importlib.import_module("jsonschema")
    except ImportError:
        pytest.skip("jsonschema is not installed")

    jsonschema.validate(written(name), json.loads(Path(place).read_text()))
