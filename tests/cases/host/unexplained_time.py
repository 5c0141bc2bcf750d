"""Runs that have HO412, and that must stay quiet."""

from __future__ import annotations

from flatout.records.message import verbatim
from flatout.records.report import Bound, Cost, Grounds, LineCost, Location, Verdict
from tests.cases.evidence import Case, run

_MS = {"data": 1.0, "forward": 40.0, "backward": 39.0, "optimizer": 5.0, "other": 15.0}
_LINES = (LineCost(Location("train.py", 9), "main", "other", 0.1, 10.0),)


def _verdict(cause: Bound, share: float) -> Verdict:
    return Verdict(cause, False, verbatim("Bound."), Grounds(False, 100.0, None, (Cost(cause, share),)))


CASES = (
    Case(
        "finds it when the host takes long in lines of which none stands out",
        run(ms=_MS, all_lines=_LINES, verdict=_verdict("host", 0.15)),
        found=True,
    ),
    Case("finds it when no line was seen", run(ms=_MS, verdict=_verdict("host", 0.15)), found=True),
    Case("quiet when it takes little", run(ms=_MS, verdict=_verdict("host", 0.03)), found=False),
    Case("quiet when it is the input", run(ms=_MS, verdict=_verdict("input", 0.15)), found=False),
)
SOURCE_CASES = ()
