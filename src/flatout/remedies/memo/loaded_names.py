"""What the names of a function stand for in the process that has it loaded."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import os
import sys
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from ..places import OURS
from .known_names import BUILTINS, LIBRARIES, LIBRARY, NUMPY_OF_THREE
from .purity import Body, Impure, Path, fault_of

_MISSING: Any = object()


def body_of(function: Any, owner: type | None = None) -> Body:
    """Raises Impure where the source cannot be had, or is another than what was loaded."""
    plain = _unwrapped(function)
    code = plain.__code__
    tree, compiled = _parsed("".join(linecache.getlines(code.co_filename, plain.__globals__)))
    node = next(
        (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and _begins(one) == _first(code)), None
    )
    again = next((one for one in _codes(compiled) if _first(one) == _first(code)), None)
    if node is None or again is None or _words_of(again) != _words_of(code):
        raise Impure(f"the source of {plain.__qualname__} cannot be read, or has changed since it was loaded")
    return Body(node, Loaded(plain, owner), owner is not None, code.co_filename)


@lru_cache(maxsize=16)
def _parsed(source: str) -> tuple[ast.Module, CodeType]:
    try:
        return ast.parse(source), compile(source, "", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        raise Impure("its source cannot be read") from None


def _unwrapped(function: Any) -> FunctionType:
    """What torch's own decorators and ours are around; those of others may do anything."""
    while isinstance(function, FunctionType) and (wrapped := getattr(function, "__wrapped__", None)) is not None:
        if not os.path.abspath(function.__code__.co_filename).startswith((_torch_folder(), *OURS)):
            raise Impure(f"{function.__qualname__} is wrapped in something else")
        function = wrapped
    if not isinstance(function, FunctionType):
        raise Impure(f"{getattr(function, '__qualname__', function)!s} is not written in Python")
    return function


def _torch_folder() -> str:
    return os.path.dirname(os.path.abspath(sys.modules["torch"].__file__ or "")) + os.sep


def _first(code: CodeType) -> tuple[str, int]:
    return code.co_name, code.co_firstlineno


def _words_of(code: CodeType) -> tuple[object, ...]:
    """All that it does, wherever it is written."""
    constants = [repr(one) for one in code.co_consts if not isinstance(one, CodeType)]
    return code.co_code, code.co_names, code.co_varnames, constants, [_words_of(one) for one in _codes(code)]


def _begins(node: ast.FunctionDef) -> tuple[str, int]:
    return node.name, min([node.lineno, *(one.lineno for one in node.decorator_list)])


def _codes(code: CodeType) -> list[CodeType]:
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return [*inner, *(other for one in inner for other in _codes(one))]


class Loaded:
    """The globals, the closure and the class of a function."""

    def __init__(self, function: FunctionType, owner: type | None) -> None:
        self._globals = function.__globals__
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self._owner = owner

    def root(self, name: str) -> Any:
        """The value of a name just now. Raises Impure."""
        if name in self._cells:
            try:
                return self._cells[name].cell_contents
            except ValueError:
                raise Impure(f"it reads {name}, which is not there yet") from None
        found = self._globals.get(name, _MISSING)
        if found is _MISSING:
            found = vars(builtins).get(name, _MISSING)
        if found is _MISSING:
            raise Impure(f"it reads {name}, which is not there")
        return found

    def origin(self, path: Path) -> str | None:
        found = self._found(path)
        if found is _MISSING:
            return None
        if len(path) == 1 and vars(builtins).get(path[0]) is found:
            return f"builtins.{path[0]}"
        name = getattr(found, "__name__", path[-1])
        for module, names in LIBRARY.items():
            if name in names and vars(sys.modules.get(module, builtins)).get(name) is found and _is_of(found, module):
                return f"{module}.{name}"
        return None

    def called(self, path: Path, arguments: int) -> Body | None:
        written = ".".join(path)
        found, origin = self._found(path), self.origin(path)
        if origin is not None:
            _check_known(origin, found, arguments)
            return None
        if isinstance(found, FunctionType) and not _is_library(found):
            return body_of(found)
        raise Impure(f"it calls {written}, which {fault_of(path[-1])}")

    def method(self, name: str) -> Body:
        found = inspect.getattr_static(self._owner, name, None)
        if self._owner is not None and isinstance(found, staticmethod):
            return body_of(found.__func__)
        if self._owner is None or not isinstance(found, FunctionType):
            raise Impure(f"it calls self.{name}, which is no plain method of yours")
        return body_of(found, self._owner)

    def _found(self, path: Path) -> Any:
        """Through modules only: what else has attributes may compute them."""
        try:
            found = self.root(path[0])
        except Impure:
            return _MISSING
        for name in path[1:]:
            if not isinstance(found, ModuleType):
                return _MISSING
            found = vars(found).get(name, _MISSING)
        return found


def _check_known(origin: str, found: Any, arguments: int) -> None:
    module, _, name = origin.rpartition(".")
    if module == "builtins":
        if name not in BUILTINS and not (isinstance(found, type) and issubclass(found, Exception)):
            raise Impure(f"it calls {name}")
        return
    # Behind its inputs numpy takes the array to write into.
    most = getattr(found, "nin", 3 if name in NUMPY_OF_THREE else 2)
    if module == "numpy" and arguments > most:
        raise Impure(f"it calls {origin} with {arguments} arguments by position: one may be written into")


def _is_of(found: Any, module: str) -> bool:
    """Not a function of somebody else's that was put in its place."""
    library = module.partition(".")[0]
    home = getattr(found, "__module__", None) or library
    return isinstance(found, BuiltinFunctionType | type) or home.partition(".")[0] == library


def _is_library(function: FunctionType) -> bool:
    home = function.__module__ or ""
    return home.partition(".")[0] in LIBRARIES
