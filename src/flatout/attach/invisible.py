"""Keeps our own functions out of torch.compile's sight.

A function called from within a compiled region is a candidate for compilation itself. Ours must not be: they would
cost compilations and graph breaks that the script does not have on its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any


def hide_from_compiler(torch: Any, package: str) -> None:
    """Mark the code of every function in `package` as not to be compiled."""
    skip_code = _marker(getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None))
    if skip_code is None:
        return
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(package + "."):
            for code in _codes_of(vars(module).values(), name):
                skip_code(code)


def _marker(eval_frame: Any) -> Callable[[CodeType], object] | None:
    """Torch's way to mark code, by its C part alone: importing torch._dynamo would take seconds."""
    if hasattr(eval_frame, "set_code_exec_strategy"):
        action = eval_frame._FrameAction
        strategy = eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)
        return lambda code: eval_frame.set_code_exec_strategy(code, strategy)
    marker: Callable[[CodeType], object] | None = getattr(eval_frame, "skip_code", None)
    return marker


def _codes_of(values: Any, module: str) -> Iterator[CodeType]:
    for value in values:
        if isinstance(value, FunctionType):
            yield from _nested(value.__code__)
        elif isinstance(value, type) and value.__module__ == module:
            yield from _codes_of(vars(value).values(), module)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
