"""Which function the training loop calls only for what it does besides, and then waits in: by a run's findings.

Works on the source as it lies here, in flatout's own process; nothing of the user's is imported.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from ..memo.proposing import module_of

if TYPE_CHECKING:
    from ...records.report import Finding, Location, RunReport

_CODE = "SY305"
_CALLS = "calls "


def waiting_call(report: RunReport) -> str | None:
    """Its `module:function`; None where there is none, or what it returns may be used."""
    for finding in report.findings:
        if finding.code == _CODE and (name := _named(finding, report.run.argv)) is not None:
            return name
    return None


def _named(finding: Finding, argv: tuple[str, ...]) -> str | None:
    hops = [one for one in finding.related if one.words.startswith(_CALLS)]
    if not hops or finding.location is None or not _is_statement(hops[0].location):
        return None
    name = hops[0].words.removeprefix(_CALLS)
    inside = (hops[1].location if len(hops) > 1 else finding.location).file
    return f"{module_of(inside, argv)}:{name}" if _is_plain_function(inside, name) else None


def _is_statement(location: Location) -> bool:
    """Whether the line is a call whose result goes nowhere."""
    tree = _tree(location.file)
    return any(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.lineno == location.line
        for node in ast.walk(tree)
    )


def _is_plain_function(file: str, name: str) -> bool:
    *classes, last = name.split(".")
    body = _tree(file).body
    for one in classes:
        body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == one), [])
    found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == last]
    return len(found) == 1 and not found[0].decorator_list


def _tree(file: str) -> ast.Module:
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])
