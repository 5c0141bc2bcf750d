"""Edits that leave every other byte as it is: a keyword more in a call, other text for a node, a statement less.

All of them give None where the text does not allow it without touching more than they should.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from flatout.records.source import Edit, Place
from flatout.source.module import Module
from flatout.source.nodes import children


def with_keyword(module: Module, call: ast.Call, text: str) -> Edit | None:
    """The call with `text`, such as `pin_memory=True`, as its last argument: on its own line where the others are."""
    if not _stands_there(module, call):
        return None
    close = _offset(module, call.end_lineno or call.lineno, call.end_col_offset or 0) - 1
    given = [*call.args, *(one.value for one in call.keywords)]
    if not given:
        return _put(module, close, close, text)
    last = max(given, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))
    tail = _tail(module.text, _offset(module, last.end_lineno or 1, last.end_col_offset or 0), close)
    return None if tail is None else _joined(module, call, last, tail, text)


def instead(module: Module, node: ast.AST, text: str) -> Edit:
    """`text` in the place of a node."""
    return Edit(module.place(node), text)


def without(module: Module, statement: ast.stmt) -> Edit | None:
    """The statement taken out with its lines; `pass` where a block would be left empty."""
    body = _block_of(module.tree, statement)
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    if body is None or any(
        one is not statement and one.lineno <= last and (one.end_lineno or one.lineno) >= first for one in body
    ):
        return None  # it shares a line with others
    before = module.lines[first - 1].encode()[: statement.col_offset].decode(errors="ignore")
    if before.strip():
        return None  # behind the colon of its block
    if len(body) == 1:
        return Edit(module.place(statement), "pass")
    return Edit(module.at(first, 1, last + 1, 1), "")


def text_at(module: Module, node: ast.expr) -> str:
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
    named = next((one for one in call.keywords if one.value is last), None)
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
        found = ast.parse(f"({text_at(module, call)}\n)", mode="eval").body
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
            if isinstance(block, list) and any(one is statement for one in block):
                return block
        stack += children(node)
    return None
