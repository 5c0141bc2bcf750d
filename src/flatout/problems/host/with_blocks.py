"""Bodies of `with` statements in the user's source, and whether the training ran inside them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import lru_cache

from flatout.problems.hot_lines import lines_in
from flatout.records.evidence import Evidence
from flatout.records.report import Location
from flatout.source.syntax.module import parse_text


def find_around_training(run: Evidence, opens: Callable[[ast.Call, set[str]], bool]) -> Location | None:
    """The first `with` whose call `opens` accepts, and in whose body a line was seen to train.

    `opens` is also given the names that the file imports from torch's modules.
    """
    trains = [line.location for line in lines_in(run, "backward", "optimizer")]
    for file, text in run.files.items():
        module = parse_text(text)
        imported = {
            name
            for name, brought in module.imports.items()
            if brought.attribute is not None and module.library_of(name) == "torch"
        }
        for block in _find_blocks(text):
            calls = [item.context_expr for item in block.items if isinstance(item.context_expr, ast.Call)]
            inside = range(block.lineno, (block.end_lineno or block.lineno) + 1)
            if any(opens(call, imported) for call in calls) and any(
                place.file == file and place.line in inside for place in trains
            ):
                return Location(file, block.lineno)
    return None


@lru_cache(maxsize=32)
def _find_blocks(text: str) -> tuple[ast.With, ...]:
    return tuple(node for node in ast.walk(parse_text(text).tree) if isinstance(node, ast.With))
