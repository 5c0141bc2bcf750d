"""Edits that leave every other byte as it is: a keyword more in a call, other text for a node, a statement less.

All of them give None where the text does not allow it without touching more than they should.
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
from flatout.source.syntax.nodes import all_arguments, bound_names, children


def add_keyword(module: Module, call: ast.Call, text: str) -> Edit | None:
    """The call with `text`, such as `pin_memory=True`, as its last argument: on its own line where the others are."""
    if not _stands_there(module, call):
        return None
    close = _offset(module, call.end_lineno or call.lineno, call.end_col_offset or 0) - 1
    given = all_arguments(call)
    if not given:
        return _put(module, close, close, text)
    last = max(given, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))
    tail = _tail(module.text, _offset(module, last.end_lineno or 1, last.end_col_offset or 0), close)
    return None if tail is None else _joined(module, call, last, tail, text)


def replace_node(module: Module, node: ast.AST, text: str) -> Edit:
    """`text` in the place of a node."""
    return Edit(module.place(node), text)


def remove_statement(module: Module, statement: ast.stmt) -> Edit | None:
    """The statement taken out with its lines; `pass` where a block would be left empty."""
    body = _block_of(module.tree, statement)
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    if body is None or any(
        node is not statement and node.lineno <= last and (node.end_lineno or node.lineno) >= first for node in body
    ):
        return None  # it shares a line with others
    before = module.lines[first - 1].encode()[: statement.col_offset].decode(errors="ignore")
    if before.strip():
        return None  # behind the colon of its block
    if len(body) == 1:
        return Edit(module.place(statement), "pass")
    return Edit(module.at(first, 1, last + 1, 1), "")


def source_text(module: Module, node: ast.expr) -> str:
    """The text of an expression as it is written, without parentheses around it."""
    first = _offset(module, node.lineno, node.col_offset)
    return module.text[first : _offset(module, node.end_lineno or node.lineno, node.end_col_offset or 0)]


@dataclass(frozen=True, slots=True)
class _Tail:
    """What stands between the last argument and the end of its call, as offsets in the text."""

    # Behind the last argument, with the parentheses around it.
    last: int
    # Behind the comma that follows it.
    comma: int | None
    # The end of that line, where the call goes on in the next one.
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


def _joined(module: Module, call: ast.Call, last: ast.expr, tail: _Tail, text: str) -> Edit:
    named = next((keyword for keyword in call.keywords if keyword.value is last), None)
    first = named or last
    line = module.lines[first.lineno - 1]
    indent = line[: len(line) - len(line.lstrip())]
    begins_its_line = not line.encode()[: first.col_offset].strip()
    if tail.comma is not None:
        if tail.line_end is not None and first.lineno > (call.func.end_lineno or 0):
            # Behind a comment on the last argument, which stays with it.
            return _put(module, tail.line_end, tail.line_end, f"\n{indent}{text},")
        return _put(module, tail.comma, tail.comma, f" {text},")
    if not begins_its_line:
        return _put(module, tail.last, tail.last, f", {text}")
    if tail.line_end is not None and "#" in (rest := module.text[tail.last : tail.line_end]):
        return _put(module, tail.last, tail.line_end, f",{rest}\n{indent}{text}")
    return _put(module, tail.last, tail.last, f",\n{indent}{text}")


def _stands_there(module: Module, call: ast.Call) -> bool:
    """Parsers before 3.12 may be wrong about where an expression inside an f-string is."""
    try:
        found = ast.parse(f"({source_text(module, call)}\n)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return isinstance(found, ast.Call) and ast.dump(found) == ast.dump(call)


def _offset(module: Module, line: int, column_bytes: int) -> int:
    before = module.lines[: line - 1]
    column = len(module.lines[line - 1].encode()[:column_bytes].decode(errors="ignore"))
    return sum(map(len, before)) + len(before) + column


def _put(module: Module, first: int, last: int, text: str) -> Edit:
    return Edit(_place(module, first, last), text)


def _place(module: Module, first: int, last: int) -> Place:
    line, column = _line_and_column(module.text, first)
    return module.at(line, column) if first == last else module.at(line, column, *_line_and_column(module.text, last))


def _line_and_column(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def _block_of(tree: ast.Module, statement: ast.stmt) -> list[ast.stmt] | None:
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and any(node is statement for node in block):
                return block
        stack += children(node)
    return None


# The imports a fix needs: where they go, and whether they are there already.

_Import = ast.Import | ast.ImportFrom


def add_import(module: Module, statement: str) -> Edit | tuple[()] | None:
    """Puts an import among those of the file; nothing to do gives (), and None if its name means something else."""
    wanted = ast.parse(statement).body[0]
    assert isinstance(wanted, ast.Import | ast.ImportFrom), statement
    brought = set(_brought(wanted))
    if brought <= {pair for node in _at_the_top(module.tree.body) for pair in _brought(node)}:
        return ()
    names = {name for name, _ in brought}
    if any(name in names and (name, meaning) not in brought for name, meaning in _bound(module)):
        return None
    return _beside(module, wanted, statement)


def _beside(module: Module, wanted: _Import, statement: str) -> Edit:
    """Behind the import that is most like it: of the same package, else the last of the first block of them."""
    head = _head(module.tree.body)
    imports = [node for node in head if isinstance(node, ast.Import | ast.ImportFrom)]
    plain = [node for node in imports if not _is_future(node)]
    same = [part for part in plain if _package(part) == _package(wanted)]
    after = (same or plain or imports or head)[-1:]
    if after:
        line = after[0].end_lineno or after[0].lineno
        return Edit(module.at(line, len(module.lines[line - 1]) + 1), f"\n{statement}")
    first = module.tree.body[0]
    decorators = getattr(first, "decorator_list", [])
    return Edit(module.at(min([first.lineno, *(decorator.lineno for decorator in decorators)])), f"{statement}\n")


def insert_after_imports(module: Module, statement: str) -> Edit | None:
    """The statement on a line of its own behind the imports that a script begins with; None if it is no script."""
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
    if last is None or not has_torch or _shares_a_line(module, last):
        return None
    line = last.end_lineno or last.lineno
    return Edit(module.at(line, len(module.lines[line - 1].rstrip("\r")) + 1), f"\n\n{statement}")


def _shares_a_line(module: Module, statement: ast.stmt) -> bool:
    end = statement.end_lineno or statement.lineno
    return any(node is not statement and node.lineno == end for node in module.tree.body)


def _head(body: list[ast.stmt]) -> list[ast.stmt]:
    """The docstring and the first block of imports."""
    found: list[ast.stmt] = []
    for at, node in enumerate(body):
        is_docstring = at == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not isinstance(node, ast.Import | ast.ImportFrom) and not is_docstring:
            break
        found.append(node)
    return found


def _at_the_top(body: list[ast.stmt]) -> Iterator[_Import]:
    """Imports that run with the file: also in `try` and `if`, not those in functions."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.Try | ast.If | ast.With):
            for name in ("body", "orelse", "finalbody"):
                yield from _at_the_top(getattr(node, name, []))


def _brought(node: _Import) -> list[tuple[str, str]]:
    """Names that an import binds, each with what it means."""
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


def _bound(module: Module) -> Iterator[tuple[str, str]]:
    """Names of the file that an import may take the place of, with what they mean where that is an import."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, ""
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        elif isinstance(node, ast.ImportFrom):
            yield from _brought(node)
        elif isinstance(node, ast.arg):
            yield node.arg, ""
        elif isinstance(node, ast.Name):
            yield from ((name, "") for name in bound_names(node))


def _package(node: _Import) -> str:
    name = node.names[0].name if isinstance(node, ast.Import) else node.module or ""
    return name.split(".")[0]


def _is_future(node: _Import) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


# Puts edits into a text: where each of them lies, which get in each other's way, and where a place is afterwards.
# Lines end as they end in the text: what an edit adds gets the ends of the lines around it.

# Not what `splitlines` takes for one: a form feed stands within a line.
_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """`text` in the place of what stands from `first` up to `last`."""

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
        if not 1 <= line <= len(self._starts) or not 1 <= column <= self._width(line) + 1:
            raise FlatoutError(f"has no line {line} to edit as it was read")
        return self._starts[line - 1] + column - 1

    def where(self, offset: int) -> tuple[int, int]:
        """Line and column."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def _width(self, line: int) -> int:
        return self._stops[line - 1] - self._starts[line - 1]

    def _end_at(self, line: int) -> str:
        at = min(line, len(self._starts)) - 1
        ends = self.text[self._stops[at] : self._starts[at + 1]] if at + 1 < len(self._starts) else ""
        return ends or self._usual


def has_conflict(change: Change, other: Change) -> bool:
    """Do two changes touch the same text, or put something in at the same place?"""
    return change.first == other.first or (change.first < other.last and other.first < change.last)


def apply_changes(text: str, changes: Iterable[Change]) -> str:
    """All of them, which must not clash, from the end on: so that the places before stay right."""
    for change in sorted(changes, reverse=True):
        text = text[: change.first] + change.text + text[change.last :]
    return text


def shift_place(text: Text, changes: Sequence[Change], place: Place) -> tuple[int, int]:
    """Line and column at which what stood at a place begins after the changes."""
    at = text.offset(place.line, place.column)
    shift = 0
    for change in sorted(changes):
        if change.last <= at:
            shift += len(change.text) - (change.last - change.first)
        elif change.first <= at:
            at = change.first
            break
    return Text(apply_changes(text.text, changes)).where(at + shift)
