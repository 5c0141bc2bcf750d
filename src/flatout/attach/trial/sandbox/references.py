"""Puts a function in the place of one of Python's own wherever that is held, and the very same original back.

`os.stat` is also known to modules that took it by name (`from os import stat`), to classes that keep it
(`glob` of Python 3.13) and to functions that have it as a default (`tempfile`). What is imported later finds ours.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from ...patching import Patches

# Imports go by these: they are not the script's own reading and writing. Ours keep what they need of the system.
_LEFT_ALONE = ("posix", "_io", "_frozen_importlib", "_frozen_importlib_external", "importlib", "zipimport")
_SETS = ("supports_dir_fd", "supports_fd", "supports_follow_symlinks", "supports_effective_ids")
_SANDBOX = __name__.rpartition(".")[0]
# What stands in for another bears this mark.
CONTAINED = "__flatout_contained__"


def as_builtin(original: Any, call: Callable[..., Any], module: str) -> Any:
    """Called instead of `original`; like a function written in C, it is not bound where a class holds it."""
    kind = type(
        "builtin_function_or_method",
        (),
        {
            "__call__": staticmethod(call),
            # Pickled by name, as the original is.
            "__reduce__": lambda self: original.__name__,
            "__repr__": lambda self: repr(original),
            "__doc__": original.__doc__,
            CONTAINED: True,
        },
    )
    made = kind()
    made.__module__, made.__name__, made.__qualname__ = module, original.__name__, original.__name__
    made.__wrapped__ = original
    return made


class References:
    def __init__(self) -> None:
        self._patches = Patches()
        self._undo: list[Callable[[], object]] = []  # what is no attribute
        self._over = False

    def put(self, replacements: dict[str, Callable[..., Any]], opened: Callable[..., Any]) -> None:
        """`replacements` by their names in `os`, `opened` for the built-in `open`."""
        table: dict[int, tuple[Any, Any]] = {}
        for name, call in replacements.items():
            original = getattr(os, name, None)
            if original is not None:
                table[id(original)] = original, as_builtin(original, call, "os")
        table[id(builtins.open)] = builtins.open, as_builtin(builtins.open, opened, "builtins")
        # By the names they were imported under: `_io` calls itself `io` in Python 3.11.
        for name, module in list(sys.modules.items()):
            if not _is_left_alone(name):
                self._in_module(module, table)
        for name in _SETS:
            self._in_set(getattr(os, name), table)

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Not after all was put back: a library can come late."""
        if not self._over:
            self._patches.put(owner, name, value)

    def restore(self) -> None:
        self._patches.restore()
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self._over = True

    def _in_module(self, module: Any, table: dict[int, tuple[Any, Any]]) -> None:
        home = getattr(module, "__name__", None)
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in table:
                self.replace(module, name, table[id(value)][1])
            # By their types: what is asked for its class may be code of a library's.
            elif type(value) is FunctionType and value.__module__ == home:
                self._in_defaults(value, table)
            elif issubclass(type(value), type) and value.__module__ == home:
                self._in_class(value, table)

    def _in_class(self, kind: type, table: dict[int, tuple[Any, Any]]) -> None:
        for name, value in list(vars(kind).items()):
            if id(value) in table:
                self.replace(kind, name, table[id(value)][1])
            elif isinstance(value, staticmethod) and id(value.__func__) in table:
                self.replace(kind, name, staticmethod(table[id(value.__func__)][1]))
            elif isinstance(value, FunctionType):
                self._in_defaults(value, table)

    def _in_defaults(self, function: FunctionType, table: dict[int, tuple[Any, Any]]) -> None:
        before = function.__defaults__
        if before and any(id(value) in table for value in before):
            function.__defaults__ = tuple(table[id(value)][1] if id(value) in table else value for value in before)
            self._undo.append(lambda: setattr(function, "__defaults__", before))

    def _in_set(self, held: set[Any], table: dict[int, tuple[Any, Any]]) -> None:
        added = {replacement for original, replacement in table.values() if original in held}
        held |= added
        self._undo.append(lambda: held.difference_update(added))


def _is_left_alone(name: str) -> bool:
    return name in _LEFT_ALONE or name.startswith((_SANDBOX, "importlib."))
