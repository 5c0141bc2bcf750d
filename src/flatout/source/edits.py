"""Edits that leave every other byte as it is: a keyword more in a call, other text for a node, a statement less.

All of them give None where the text does not allow it without touching more than they should.
"""

from __future__ import annotations

import ast
import io
import tokenize

from flatout.records.source import Edit
from flatout.source.module import Module
from flatout.source.nodes import children

_QUIET = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.ENDMARKER, tokenize.INDENT, tokenize.DEDENT)


def with_keyword(module: Module, call: ast.Call, text: str) -> Edit | None:
    """The call with `text`, such as `pin_memory=True`, as its last argument: on its own line where the others are."""
    given = [*call.args, *(one.value for one in call.keywords)]
    end = module.place(call)
    if not given:
        return Edit(module.at(*_before(call, module)), text)
    last = max(given, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))
    if isinstance(last, ast.GeneratorExp) and len(given) == 1:
        return None  # the only argument shares its parentheses with the call
    spot = _after(module, last, call)
    if spot is None:
        return None
    line, column, is_closed = spot
    if not is_closed:
        return Edit(module.at(line, column), f", {text}")
    begins = module.lines[_first_line(call, last) - 1]
    if end.end_line == end.line or not begins[: len(begins) - len(begins.lstrip())]:
        return Edit(module.at(line, column), f" {text},")
    return Edit(module.at(line, column), f"\n{begins[: len(begins) - len(begins.lstrip())]}{text},")


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


def _before(call: ast.Call, module: Module) -> tuple[int, int]:
    place = module.place(call)
    return call.end_lineno or call.lineno, place.end_column - 1


def _after(module: Module, last: ast.expr, call: ast.Call) -> tuple[int, int, bool] | None:
    """Where the next argument goes, and whether a comma stands there already."""
    line, column = last.end_lineno or 1, module.place(last).end_column
    stop_line, stop = _before(call, module)
    between = module.lines[line - 1 : stop_line]
    between[-1] = between[-1][: stop - 1]
    between[0] = between[0][column - 1 :]
    text = "\n".join(between)
    try:
        # In parentheses: that is where the text stands, and line ends mean nothing there.
        tokens = list(tokenize.generate_tokens(io.StringIO(f"({'(' * text.count(')')}{text})").readline))
    except (tokenize.TokenError, SyntaxError):
        return None
    lead = 1 + text.count(")")
    found = (line, column, False)
    for token in tokens[lead:-1]:
        if token.type in _QUIET:
            continue
        row, at = token.end
        spot = (line + row - 1, at - lead + column if row == 1 else at + 1)
        if token.string == "," and not found[2]:
            found = (*spot, True)
        elif token.string == ")" and spot[:2] <= (stop_line, stop):
            found = (*spot, found[2])
    return found


def _first_line(call: ast.Call, last: ast.expr) -> int:
    """The line that the last argument begins in, with its name where it has one."""
    named = next((one for one in call.keywords if one.value is last), None)
    return named.lineno if named is not None else last.lineno


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
