"""How the script makes a DataLoader: which settings stand in the call, and which are left to their defaults."""

from __future__ import annotations

import ast


def keywords(text: str, line: int) -> dict[str, str] | None:
    """Keyword → "literal" or "computed", of the one DataLoader call that holds this line; None where it is unclear."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    calls = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and _makes_loader(node) and _holds(node, line)
    ]
    if len(calls) != 1:
        return None
    call = calls[0]
    # What `**settings` or a third positional argument brings cannot be read off here.
    if len(call.args) > 1 or any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    if any(keyword.arg is None for keyword in call.keywords):
        return None
    return {
        str(keyword.arg): "literal" if isinstance(keyword.value, ast.Constant) else "computed"
        for keyword in call.keywords
    }


def _makes_loader(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name == "DataLoader"


def _holds(node: ast.Call, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)
