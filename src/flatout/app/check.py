"""`flatout check`: the catalogue over source, shown in the form that was asked for."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from flatout import __version__
from flatout.diagnose.checking import check, chosen
from flatout.problems.catalogue import problems
from flatout.records.source import CheckReport
from flatout.report import check as terminal
from flatout.report.check_json import github, to_json
from flatout.report.sarif import sarif
from flatout.source.loading import load

FORMATS = ("full", "concise", "json", "sarif", "github")


def checked(
    paths: Sequence[Path],
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    exclude: Sequence[str] = (),
    output: str = "full",
    statistics: bool = False,
) -> tuple[str, CheckReport]:
    """The text to print and what it is about."""
    looked_for = chosen(select, ignore)
    # Syntax trees are many objects that all stay: looking through them again and again finds nothing to free.
    gc.disable()
    try:
        report = check(load(paths, exclude), looked_for)
    finally:
        gc.enable()
    return _shown(report, output, statistics), report


def _shown(report: CheckReport, output: str, statistics: bool) -> str:
    if output == "json":
        return to_json(report)
    if output == "sarif":
        return sarif(report, __version__, {one.code: one.text for one in problems()})
    if output == "github":
        return github(report)
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    unicode = (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")
    draw = terminal.statistics if statistics else terminal.concise if output == "concise" else terminal.full
    return draw(report, color=color, unicode=unicode)
