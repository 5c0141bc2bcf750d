"""Functions of a file that only serve another one of it."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import lru_cache

from flatout.source.nodes import DEFINITIONS, called_name, children


@lru_cache(maxsize=64)
def helpers_of(text: str, function: str) -> frozenset[str]:
    """Functions that this one calls, itself or through others, and nobody else in the file does."""
    try:
        callers = _callers(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    serving = {function}
    while True:
        more = {name for name, by in callers.items() if by <= serving} - serving
        if not more:
            return frozenset(serving - {function})
        serving |= more


def _callers(tree: ast.Module) -> dict[str, set[str]]:
    """Of every function of the file that is called in it: from which functions; "" is the file's own body."""
    defined: set[str] = set()
    calls: dict[str, set[str]] = defaultdict(set)
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, inside = stack.pop()
        for child in children(node):
            if isinstance(child, ast.Call):
                calls[called_name(child)].add(inside)
            if isinstance(child, DEFINITIONS) and not isinstance(child, ast.ClassDef | ast.Lambda):
                defined.add(child.name)
                stack.append((child, child.name))
            else:
                stack.append((child, inside))
    return {name: by for name, by in calls.items() if name in defined}
