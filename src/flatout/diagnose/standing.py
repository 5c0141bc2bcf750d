"""Where the lines that a run saw stand in the source as it is now."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from pathlib import PurePath

from flatout.records.report import Location
from flatout.records.source import Place
from flatout.source.project.project import Project
from flatout.source.syntax.module import Module
from flatout.source.syntax.nodes import LOOPS, children, walk_scope

# A file and a line of it, as the check names them.
Spot = tuple[str, int]
# File systems round their times.
_GRACE_S = 1.0
# From so many parts of a path on, two that end alike mean the same file on two machines.
_ALIKE = 2


class Standing:
    """Finds a run's lines again. `changed` are the files that were written since the run began."""

    def __init__(self, project: Project, begun_unix_s: float, snippets: Mapping[Location, str]) -> None:
        self._modules = {module.shown: module for module in project.modules if module.cells is None}
        self._by_path = {os.path.realpath(shown): shown for shown in self._modules}
        self._begun_unix_s = begun_unix_s
        self._snippets = snippets
        self._files: dict[str, str | None] = {}
        self._is_changed: dict[str, bool] = {}

    @property
    def changed(self) -> list[str]:
        """Of the files that were asked for."""
        return sorted(shown for shown, is_changed in self._is_changed.items() if is_changed)

    def now(self, location: Location) -> Spot | None:
        """None for a file that is not looked at, or a line that cannot be told from others any more."""
        if location.file not in self._files:
            self._files[location.file] = self._same_file(location.file)
        shown = self._files[location.file]
        if shown is None:
            return None
        if not self._was_changed(shown):
            return shown, location.line
        line = self._by_text(self._modules[shown], location)
        return None if line is None else (shown, line)

    def _same_file(self, file: str) -> str | None:
        known = self._by_path.get(os.path.realpath(file))
        if known is not None or os.path.exists(file):
            return known
        # Recorded elsewhere: by the end of its path.
        alike = {shown: _common_end(file, path) for path, shown in self._by_path.items()}
        most = max(alike.values(), default=0)
        best = [shown for shown, count in alike.items() if count == most]
        return best[0] if len(best) == 1 and most >= _ALIKE else None

    def _was_changed(self, shown: str) -> bool:
        if shown not in self._is_changed:
            try:
                self._is_changed[shown] = os.stat(shown).st_mtime > self._begun_unix_s + _GRACE_S
            except OSError:
                self._is_changed[shown] = True
        return self._is_changed[shown]

    def _by_text(self, module: Module, location: Location) -> int | None:
        text = self._snippets.get(location)
        if not text:
            return None
        same = [number for number, line in enumerate(module.lines, start=1) if line.strip() == text]
        if len(same) > 1 and location.line in same:
            return location.line
        return same[0] if len(same) == 1 else None

    def lines_of(self, place: Place) -> set[Spot]:
        """All lines of the statement that stands there; of a block's head only the head, unless the block is meant."""
        last = max(place.line, place.end_line)
        module = self._modules.get(place.file)
        if module is None or place.cell is not None:
            return set()
        first = place.line
        statement = _statement_at(module.tree, place)
        if statement is not None:
            is_meant = (statement.lineno, statement.col_offset + 1) == (place.line, place.column)
            first = min(first, statement.lineno)
            last = max(last, _end(statement, is_meant))
        return {(place.file, number) for number in range(first, last + 1)}

    def beside(self, place: Place) -> set[Spot] | None:
        """Lines that run exactly as often: of the innermost loop or function around it, without the loops in there.

        None where there is neither, or a function may do both: set up, and then go on for long in a loop of its own.
        """
        module = self._modules.get(place.file)
        if module is None or place.cell is not None:
            return None
        around = _around(module.tree, place.line)
        if not around:
            return None
        inner = around[-1]
        nested = [one for one in walk_scope(inner) if isinstance(one, LOOPS) and one is not inner]
        if nested and not isinstance(inner, LOOPS):
            return None
        apart = {number for one in nested for number in range(one.lineno, (one.end_lineno or one.lineno) + 1)}
        lines = set(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1)) - apart
        return {(place.file, number) for number in lines}


def _common_end(one: str, other: str) -> int:
    count = 0
    for a, b in zip(reversed(PurePath(one).parts), reversed(PurePath(other).parts), strict=False):
        if a != b:
            break
        count += 1
    return count


def _statement_at(tree: ast.Module, place: Place) -> ast.stmt | None:
    """The innermost statement that the place lies in."""
    found: ast.stmt | None = None
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            if isinstance(node, ast.stmt | ast.ExceptHandler) and not _holds(node, place.line):
                continue
            if isinstance(node, ast.stmt) and (found is None or _is_inside(node, found)):
                found = node
            waiting += children(node)
    return found


def _around(tree: ast.Module, line: int) -> list[ast.stmt]:
    """Functions and loops around a line, the outermost first."""
    found: list[ast.stmt] = []
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt) and not _holds(node, line):
            continue
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(node, ast.stmt) and (is_function or (isinstance(node, LOOPS) and line >= node.body[0].lineno)):
            found.append(node)
        waiting += children(node)
    return sorted(found, key=lambda one: one.lineno)


def _is_inside(node: ast.stmt, other: ast.stmt) -> bool:
    return (node.lineno, node.col_offset) >= (other.lineno, other.col_offset)


def _holds(node: ast.stmt | ast.ExceptHandler, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _end(statement: ast.stmt, whole: bool) -> int:
    body = getattr(statement, "body", None)
    if whole or not body:
        return statement.end_lineno or statement.lineno
    return max(statement.lineno, int(body[0].lineno) - 1)
