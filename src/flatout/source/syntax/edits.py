"""Edits of source text: makes them for a node, adds the imports they need, and applies them to the text.

An edit changes nothing but what it is about. Where that is not possible, the functions here give None.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from flatout.errors import FlatoutError
from flatout.records.source import Edit, Place
from flatout.source.syntax.module import Module
from flatout.source.syntax.nodes import all_arguments, bound_names


def add_keyword(module: Module, call: ast.Call, text: str) -> Edit | None:
    """Adds `text`, such as `pin_memory=True`, as last argument of a call: on its own line where the others are."""
    if not _is_at_its_place(module, call):
        return None
    close = _offset(module, call.end_lineno or call.lineno, call.end_col_offset or 0) - 1
    given = all_arguments(call)
    if not given:
        return _edit(module, close, close, text)
    last = max(given, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))
    tail = _tail(module.text, _offset(module, last.end_lineno or 1, last.end_col_offset or 0), close)
    return None if tail is None else _append_argument(module, call, last, tail, text)


def replace_node(module: Module, node: ast.AST, text: str) -> Edit:
    """Puts `text` in the place of a node."""
    return Edit(module.place(node), text)


def remove_statement(module: Module, statement: ast.stmt) -> Edit | None:
    """Removes a statement with its lines; puts `pass` where its block would be empty."""
    blocks = [getattr(module.parents.get(id(statement)), name, None) for name in ("body", "orelse", "finalbody")]
    body = next((block for block in blocks if isinstance(block, list) and statement in block), None)
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    if body is None or any(
        node is not statement and node.lineno <= last and (node.end_lineno or node.lineno) >= first for node in body
    ):
        return None  # it shares a line with others
    before = module.lines[first - 1].encode()[: statement.col_offset].decode(errors="ignore")
    if before.strip():
        return None  # on the line of its block's colon
    if len(body) == 1:
        return Edit(module.place(statement), "pass")
    return Edit(module.at(first, 1, last + 1, 1), "")


def source_text(module: Module, node: ast.expr) -> str:
    """An expression as it is written, without parentheses around it."""
    first = _offset(module, node.lineno, node.col_offset)
    return module.text[first : _offset(module, node.end_lineno or node.lineno, node.end_col_offset or 0)]


@dataclass(frozen=True, slots=True)
class _Tail:
    """The text between the last argument and the end of its call, as offsets."""

    # After the last argument and the parentheses around it.
    last: int
    # After the comma that follows it.
    comma: int | None
    # The end of that line, if the call goes on in the next one.
    line_end: int | None


def _tail(text: str, at: int, close: int) -> _Tail | None:
    last, comma = at, None
    if at > close:
        return None  # a generator that shares its parentheses with the call
    while at < close:
        if text[at] == "#":
            at = text.find("\n", at, close)
            if at < 0:
                return None
        elif text[at] == "," and comma is None:
            comma = at + 1
        elif text[at] == ")" and comma is None:
            last = at + 1
        elif not text[at].isspace() and text[at : at + 2] != "\\\n":
            return None
        at += 1
    line_end = text.find("\n", comma or last, close)
    return _Tail(last, comma, line_end if line_end >= 0 and text[line_end - 1] != "\\" else None)


def _append_argument(module: Module, call: ast.Call, last: ast.expr, tail: _Tail, text: str) -> Edit:
    named = next((keyword for keyword in call.keywords if keyword.value is last), None)
    first = named or last
    line = module.lines[first.lineno - 1]
    indent = line[: len(line) - len(line.lstrip())]
    begins_its_line = not line.encode()[: first.col_offset].strip()
    if tail.comma is not None:
        if tail.line_end is not None and first.lineno > (call.func.end_lineno or 0):
            # After a comment on the last argument.
            return _edit(module, tail.line_end, tail.line_end, f"\n{indent}{text},")
        return _edit(module, tail.comma, tail.comma, f" {text},")
    if not begins_its_line:
        return _edit(module, tail.last, tail.last, f", {text}")
    if tail.line_end is not None and "#" in (rest := module.text[tail.last : tail.line_end]):
        return _edit(module, tail.last, tail.line_end, f",{rest}\n{indent}{text}")
    return _edit(module, tail.last, tail.last, f",\n{indent}{text}")


def _is_at_its_place(module: Module, call: ast.Call) -> bool:
    """Is the call where the parser says? Before Python 3.12 it may be wrong inside an f-string."""
    try:
        found = ast.parse(f"({source_text(module, call)}\n)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return isinstance(found, ast.Call) and ast.dump(found) == ast.dump(call)


def _offset(module: Module, line: int, column_bytes: int) -> int:
    before = module.lines[: line - 1]
    column = len(module.lines[line - 1].encode()[:column_bytes].decode(errors="ignore"))
    return sum(map(len, before)) + len(before) + column


def _edit(module: Module, first: int, last: int, text: str) -> Edit:
    """`text` between two offsets."""
    begins, ends = _line_and_column(module.text, first), _line_and_column(module.text, last)
    return Edit(module.at(*begins) if first == last else module.at(*begins, *ends), text)


def _line_and_column(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


# Imports that a fix needs.

_Import = ast.Import | ast.ImportFrom


def add_import(module: Module, statement: str) -> Edit | tuple[()] | None:
    """Adds an import to those of the file. () if it is there, None if its name means something else."""
    wanted = ast.parse(statement).body[0]
    assert isinstance(wanted, ast.Import | ast.ImportFrom), statement
    brought = set(_imported_names(wanted))
    if brought <= {pair for node in _top_level_imports(module.tree.body) for pair in _imported_names(node)}:
        return ()
    names = {name for name, _ in brought}
    if any(name in names and (name, meaning) not in brought for name, meaning in _names_of_file(module)):
        return None
    return _insert_import(module, wanted, statement)


def _insert_import(module: Module, wanted: _Import, statement: str) -> Edit:
    """After the last import of the same package, else after the first block of imports."""
    head = _leading_imports(module.tree.body)
    imports = [node for node in head if isinstance(node, ast.Import | ast.ImportFrom)]
    plain = [node for node in imports if not (isinstance(node, ast.ImportFrom) and node.module == "__future__")]
    same = [part for part in plain if _package(part) == _package(wanted)]
    after = (same or plain or imports or head)[-1:]
    if after:
        line = after[0].end_lineno or after[0].lineno
        return Edit(module.at(line, len(module.lines[line - 1]) + 1), f"\n{statement}")
    first = module.tree.body[0]
    decorators = getattr(first, "decorator_list", [])
    return Edit(module.at(min([first.lineno, *(decorator.lineno for decorator in decorators)])), f"{statement}\n")


def insert_after_imports(module: Module, statement: str) -> Edit | None:
    """Puts a statement on its own line after the imports of a script; None if the file is not a script."""
    is_script = "__main__" in module.text or any(isinstance(node, ast.For | ast.While) for node in module.tree.body)
    if not is_script:
        return None
    last: ast.stmt | None = None
    has_torch = False
    for part in module.tree.body:
        if isinstance(part, ast.Import | ast.ImportFrom):
            last = part
            has_torch |= isinstance(part, ast.Import) and any(
                name.name.split(".")[0] == "torch" and (name.asname is None or name.name == name.asname)
                for name in part.names
            )
        elif not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)):
            break
    if last is None or not has_torch:
        return None
    line = last.end_lineno or last.lineno
    if any(node is not last and node.lineno == line for node in module.tree.body):
        return None
    return Edit(module.at(line, len(module.lines[line - 1].rstrip("\r")) + 1), f"\n\n{statement}")


def _leading_imports(body: list[ast.stmt]) -> list[ast.stmt]:
    """The docstring and the first block of imports."""
    found: list[ast.stmt] = []
    for at, node in enumerate(body):
        is_docstring = at == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not isinstance(node, ast.Import | ast.ImportFrom) and not is_docstring:
            break
        found.append(node)
    return found


def _top_level_imports(body: list[ast.stmt]) -> Iterator[_Import]:
    """Imports that run when the file does: also in `try` and `if`, not in functions."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.Try | ast.If | ast.With):
            for name in ("body", "orelse", "finalbody"):
                yield from _top_level_imports(getattr(node, name, []))


def _imported_names(node: _Import) -> list[tuple[str, str]]:
    """Names that an import binds, each with its full name."""
    if isinstance(node, ast.ImportFrom):
        return [
            (alias.asname or alias.name, f"{'.' * node.level}{node.module or ''}.{alias.name}") for alias in node.names
        ]
    found = []
    for name in node.names:
        if name.asname:
            found.append((name.asname, name.name))
        else:
            # `import torch.nn` binds torch, as `import torch` does, and loads more.
            parts = name.name.split(".")
            found += [(parts[0], ".".join(parts[: at + 1])) for at in range(len(parts))]
    return found


def _names_of_file(module: Module) -> Iterator[tuple[str, str]]:
    """Names that the file binds, with the full name of those it imports."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, ""
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        elif isinstance(node, ast.ImportFrom):
            yield from _imported_names(node)
        elif isinstance(node, ast.arg):
            yield node.arg, ""
        elif isinstance(node, ast.Name):
            yield from ((name, "") for name in bound_names(node))


def _package(node: _Import) -> str:
    name = node.names[0].name if isinstance(node, ast.Import) else node.module or ""
    return name.split(".")[0]


# Applying edits. Lines that an edit adds end as the lines around it do.

# Not what `splitlines` splits at: a form feed does not end a line of Python.
_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """`text` in the place of what is between the offsets `first` and `last`."""

    first: int
    last: int
    text: str


class Text:
    """A text with its lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        ends = list(_END.finditer(text))
        self._starts = [0, *(end.end() for end in ends)]
        self._stops = [*(end.start() for end in ends), len(text)]
        self._usual = ends[0][0] if ends else "\n"

    def change(self, edit: Edit) -> Change:
        """Raises FlatoutError where the text has no such place."""
        place = edit.place
        first = self.offset(place.line, place.column)
        last = self.offset(place.end_line or place.line, place.end_column) if place.end_column else first
        if last < first:
            raise FlatoutError(f"has no line {place.line} to edit as it was read")
        beyond = place.end_line > len(self._starts)
        if beyond and not edit.text and place.column == 1 and place.line > 1:
            first = self._stops[place.line - 2]  # the last line goes with the end of the one before
        return Change(first, last, edit.text.replace("\n", self._end_at(place.line)))

    def offset(self, line: int, column: int) -> int:
        if line == len(self._starts) + 1 and column == 1:
            return len(self.text)
        is_known = 1 <= line <= len(self._starts)
        if not is_known or not 1 <= column <= self._stops[line - 1] - self._starts[line - 1] + 1:
            raise FlatoutError(f"has no line {line} to edit as it was read")
        return self._starts[line - 1] + column - 1

    def where(self, offset: int) -> tuple[int, int]:
        """Line and column."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def _end_at(self, line: int) -> str:
        at = min(line, len(self._starts)) - 1
        ends = self.text[self._stops[at] : self._starts[at + 1]] if at + 1 < len(self._starts) else ""
        return ends or self._usual


def has_conflict(change: Change, other: Change) -> bool:
    """Do two changes touch the same text, or insert at the same offset?"""
    return change.first == other.first or (change.first < other.last and other.first < change.last)


def apply_changes(text: str, changes: Iterable[Change]) -> str:
    """Applies changes that do not conflict, from the end on, so that the offsets before stay right."""
    for change in sorted(changes, reverse=True):
        text = text[: change.first] + change.text + text[change.last :]
    return text


def shift_place(text: Text, changes: Sequence[Change], place: Place) -> tuple[int, int]:
    """Line and column of a place after the changes."""
    at = text.offset(place.line, place.column)
    shift = 0
    for change in sorted(changes):
        if change.last <= at:
            shift += len(change.text) - (change.last - change.first)
        elif change.first <= at:
            at = change.first
            break
    return Text(apply_changes(text.text, changes)).where(at + shift)
