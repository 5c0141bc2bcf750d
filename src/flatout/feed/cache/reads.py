"""What the user's own classes and functions read besides their arguments: settings of the class, and globals."""

from __future__ import annotations

import argparse
import functools
import sysconfig
import types
from collections.abc import Iterator, Mapping
from typing import Any

_FOLDERS = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_PLAIN = (int, float, complex, bool, str, bytes, type(None), tuple, list, dict, set, frozenset)


def is_of_library(module: types.ModuleType | None) -> bool:
    """Python's own, or installed: its code is what its name says."""
    if module is None or module.__name__ == "__main__":
        return False
    file = getattr(module, "__file__", None)
    return file is None or file.startswith(_FOLDERS) or "-packages" in file


def settings_of(kind: type) -> Iterator[tuple[str, Any]]:
    """Plain values of the class, and its functions, which may read more."""
    for name, value in sorted(vars(kind).items()):
        function = _function_of(value)
        if function is not None:
            yield name, function
        elif type(value) in _PLAIN and not name.startswith("__"):
            yield name, value


def _function_of(value: Any) -> Any:
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    elif isinstance(value, functools.cached_property):
        value = value.func
    return value if isinstance(value, types.FunctionType) else None


def globals_of(code: types.CodeType, namespace: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Of a command line's arguments only those that are named: others, such as the rank, may differ harmlessly."""
    names = set(_names(code))
    for name in sorted(names & namespace.keys()):
        value = namespace[name]
        if isinstance(value, (argparse.Namespace, types.SimpleNamespace)):
            yield from ((f"{name}.{part}", vars(value)[part]) for part in sorted(names & vars(value).keys()))
        elif not isinstance(value, types.ModuleType):
            yield name, value


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
