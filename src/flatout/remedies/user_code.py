"""The user's own code: where in it something of ours was called from, and the source of what runs."""

from __future__ import annotations

import ast
import linecache
import os
import sys
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_FLATOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OURS = tuple(os.path.join(_FLATOUT, name) + os.sep for name in ("attach", "remedies", "feed"))

Function = ast.FunctionDef | ast.AsyncFunctionDef


def caller(torch: Any) -> str:
    """`file.py:12` of the innermost line that is neither torch's nor ours."""
    frame = user_frame(torch)
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def user_frame(torch: Any) -> FrameType:
    others = (*OURS, os.path.dirname(os.path.abspath(torch.__file__)) + os.sep)
    frame = sys._getframe(1)
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith(others):
        frame = frame.f_back
    return frame


def is_called_within(module: str) -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == module:
            return True
        frame = frame.f_back
    return False


def inner_codes(code: CodeType) -> list[CodeType]:
    """Of all that is defined inside, however deep."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [*inner, *(deeper for item in inner for deeper in inner_codes(item))]


@lru_cache(maxsize=16)
def parse(source: str) -> ast.Module | None:
    """None for what cannot be parsed."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def parse_file(file: str) -> ast.Module | None:
    """As it lies on the disk now; None where it cannot be read."""
    try:
        return parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def source_of(code: CodeType, namespace: dict[str, Any] | None = None) -> str:
    """Of the file that it comes from."""
    return "".join(linecache.getlines(code.co_filename, namespace))


def definition_of(code: CodeType, tree: ast.Module) -> Function | None:
    """The function in the source that this code was made of."""
    for node in ast.walk(tree):
        if isinstance(node, Function) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    return None
