"""Which function a training loop could call less often, read from a finding and the source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flatout.records.message import message, verbatim
from flatout.records.report import Finding, Location, RelatedLine, RunReport
from flatout.remedies.catalogue import known
from flatout.words import english
from tests.cases.evidence import run

_VIEWER = """
class View:
    def serve(self):
        self.wait()

    @staticmethod
    def show():
        pass

    def wait(self):
        self.connection.recv(4)
"""


def found(folder: Path, line: str, called: str = "View.serve") -> RunReport:
    script, viewer = folder / "train.py", folder / "view.py"
    script.write_text(f"from view import View\nlive = View()\nwhile True:\n    {line}\n")
    viewer.write_text(_VIEWER)
    hops = (
        RelatedLine(Location(str(script), 4), message("related.calls", function=called)),
        RelatedLine(Location(str(viewer), 4), message("related.calls", function="View.wait")),
    )
    here = Location(str(viewer), 11)
    finding = Finding(
        "SY305", "sync", "x", "medium", here, {}, verbatim("it waits"), "cadence.throttle", None, None, related=hops
    )
    report = run().report
    return replace(report, findings=(finding,), run=replace(report.run, argv=("python", str(script))))


def test_a_call_that_returns_nothing_of_use_is_proposed(tmp_path: Path) -> None:
    answer = known()["cadence.throttle"].applies(found(tmp_path, "live.serve()"))

    assert answer.value == "view:View.serve=50"


@pytest.mark.parametrize(
    ("line", "called"),
    [
        ("picture = live.serve()", "View.serve"),
        ("if live.serve(): break", "View.serve"),
        ("live.show()", "View.show"),
        ("live.gone()", "View.gone"),
    ],
)
def test_others_are_for_the_user_to_name(tmp_path: Path, line: str, called: str) -> None:
    answer = known()["cadence.throttle"].applies(found(tmp_path, line, called))

    assert not answer.is_yes
    assert "only you" in english(answer.why)


def test_source_that_is_gone_proposes_nothing(tmp_path: Path) -> None:
    report = found(tmp_path, "live.serve()")
    (tmp_path / "view.py").unlink()

    assert not known()["cadence.throttle"].applies(report).is_yes
