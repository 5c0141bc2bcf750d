"""Bodies of `with` statements in the user's source, and whether the training ran inside them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import lru_cache

from flatout.records.evidence import Evidence
from flatout.records.report import Location


def find_around_training(run: Evidence, opens: Callable[[ast.Call, set[str]], bool]) -> Location | None:
    """The first `with` whose call `opens` accepts, and in whose body a line was seen to train.

    `opens` is also given the names that the file imports from torch's modules.
    """
    lines = run.all_lines or run.report.lines
    trains = [line.location for line in lines if line.phase in ("backward", "optimizer")]
    for file, text in run.files.items():
        for first, last in _find_blocks(text, opens):
            if any(place.file == file and first <= place.line <= last for place in trains):
                return Location(file, first)
    return None


def _find_blocks(text: str, opens: Callable[[ast.Call, set[str]], bool]) -> Iterator[tuple[int, int]]:
    imported, bodies = _parse_with_blocks(text)
    for first, last, calls in bodies:
        if any(opens(call, imported) for call in calls):
            yield first, last


@lru_cache(maxsize=32)
def _parse_with_blocks(text: str) -> tuple[set[str], list[tuple[int, int, list[ast.Call]]]]:
    """What the file imports from torch's modules; the lines of each `with` and the calls that open it.

    Kept: several problems ask, and a run that goes on is judged again and again.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return set(), []
    imported: set[str] = set()
    bodies = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            imported |= {name.asname or name.name for name in node.names}
        elif isinstance(node, ast.With):
            calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
            bodies.append((node.lineno, node.end_lineno or node.lineno, calls))
    return imported, bodies
