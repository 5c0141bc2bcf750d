"""What a call of the function hangs on, as one key: its arguments, what else it reads, and torch's settings."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import inspect
import os
import sys
import types
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from ...records.message import Message, message
from ..user_code import OURS, definition_of, inner_codes, parse, source_of
from .content import Contents, torch_settings
from .known_names import BUILTINS, LIBRARIES, LIBRARY, NUMPY_OF_THREE
from .purity import Body, Impure, NamePath, Names, fault_of, reads_of


@dataclass(frozen=True, slots=True)
class CallKey:
    """`large` are rows of bytes that the key holds by sums alone; `values` all that the key was made of."""

    key: Hashable
    large: tuple[Any, ...]
    key_bytes: int
    values: list[Any]


class KeyMaker:
    """Of one function, for objects of one class where it is a method. Raises Impure when it is made."""

    def __init__(self, torch: Any, function: Any, owner: type | None) -> None:
        self._torch = torch
        self._owner = owner
        self._signature = inspect.signature(function)
        reads = reads_of(body_of(function, owner))
        self._has_products = reads.has_products
        self._of_self = sorted(reads.of_self)
        self._of_names = _loaded(reads.of_names)
        self._of_functions = _loaded(reads.of_functions)
        self._of_methods = sorted(reads.of_methods)
        self._looked_into = self._functions()
        self._contents = Contents(torch, lambda kind: refusal_of_class(kind, reads.attributes))

    def asked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallKey | None:
        """None where this call is not to be kept. Raises Unkeyable and Impure."""
        around = torch_settings(self._torch, self._has_products)
        if around is None:
            return None
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:
            return None  # the call itself will say what is wrong with it
        bound.apply_defaults()
        self._check_functions()
        values = list(bound.arguments.items())
        if self._owner is not None:
            _, own = values.pop(0)
            values += [(".".join(("self", *path)), value_at(self._torch, own, path)) for path in self._of_self]
        values += [(".".join(path), value_of_name(self._torch, names, path)) for names, path in self._of_names]
        key = self._contents.key(values)
        large = tuple(self._contents.large)
        return CallKey((self._owner, around, key), large, self._contents.bytes, [value for _, value in values])

    def _functions(self) -> list[tuple[str, Any]]:
        """Those that were looked into, by their names."""
        plain = [(".".join(path), value_of_name(self._torch, names, path)) for names, path in self._of_functions]
        return plain + [(name, inspect.getattr_static(self._owner, name, None)) for name in self._of_methods]

    def _check_functions(self) -> None:
        """Somebody may have put another in the place of one."""
        for (name, before), (_, now) in zip(self._looked_into, self._functions(), strict=True):
            if before is not now:
                raise Impure(message("memo.function_replaced", function=name))


def _loaded(reads: Sequence[tuple[Names, NamePath]]) -> list[tuple[LoadedNames, NamePath]]:
    return [(names, path) for names, path in reads if isinstance(names, LoadedNames)]


# Present values of what a function reads besides its arguments: dotted paths from `self` or from a global name. A
# path is followed while it leads through plain attributes, which run no code when read. What is computed on reading
# (a property, a tensor's shape) follows from its object, so that object stands for it.

_MISSING: Any = object()
# When an object is made or carried elsewhere, but not when it is read.
_NEVER_RUN = ("__init__", "__post_init__", "__new__", "__init_subclass__", "__getstate__", "__setstate__", "__reduce__")
_STANDARD = ("argparse", "collections", "dataclasses", "enum", "types", "typing")
# Attributes that are looked up as usual.
_PLAIN_LOOKUP: tuple[Any, ...] = (
    object.__getattribute__,
    types.ModuleType.__getattribute__,
    type.__getattribute__,
    tuple.__getattribute__,
)


def value_at(torch: Any, root: Any, path: NamePath) -> Any:
    """The object at the end of the path, or the last one before something is computed."""
    for name in path:
        found = _plain_attribute(torch, root, name)
        if found is _MISSING:
            break
        root = found
    return root


def _plain_attribute(torch: Any, holder: Any, name: str) -> Any:
    kind: Any = type(holder)
    if kind.__getattribute__ not in _PLAIN_LOOKUP or isinstance(holder, torch.Tensor):
        return _MISSING
    in_class = inspect.getattr_static(holder if isinstance(holder, type) else kind, name, _MISSING)
    if isinstance(in_class, types.MemberDescriptorType):
        return getattr(holder, name, _MISSING)
    if hasattr(in_class, "__get__"):
        return _MISSING  # a property or the like: it goes before the object's own attribute
    if not isinstance(holder, type):
        own = getattr(holder, "__dict__", {})
        if name in own:
            return own[name]
        if isinstance(holder, torch.nn.Module) and name in own.get("_buffers", {}):
            return own["_buffers"][name]
    return in_class


def value_of_name(torch: Any, names: LoadedNames, path: NamePath) -> Any:
    """Raises Impure where the name is gone."""
    return value_at(torch, names.root(path[0]), path[1:])


def refusal_of_class(kind: type, attributes: set[str]) -> Message | None:
    """Why objects of this class cannot stand for their content alone: reading one of these attributes does more."""
    lookup: Any = kind.__getattribute__
    if lookup not in _PLAIN_LOOKUP or any("__getattr__" in vars(owner) for owner in kind.__mro__):
        return message("memo.computes_attributes", kind=kind.__name__)
    operators = [name for owner in kind.__mro__ for name, value in vars(owner).items() if _is_own_operator(name, value)]
    if operators:
        return message("memo.own_operator", kind=kind.__name__, name=operators[0])
    for name in sorted(attributes):
        why = _refusal_of_attribute(kind, name, ())
        if why is not None:
            return message("memo.attribute", kind=kind.__name__, name=name, why=why)
    return None


def _is_own_operator(name: str, value: Any) -> bool:
    """What the user has written for len(x), x[i], x == y and the like; not what dataclasses generate."""
    if not (name.startswith("__") and isinstance(value, types.FunctionType)) or name in _NEVER_RUN:
        return False
    is_generated = value.__code__.co_filename in ("<string>", dataclasses.__file__)
    return not is_generated and value.__module__.partition(".")[0] not in _STANDARD


def _refusal_of_attribute(kind: type, name: str, around: tuple[str, ...]) -> Message | None:
    found = inspect.getattr_static(kind, name, None)
    if isinstance(found, property):
        return (
            _refusal_of_property(kind, found, (*around, name)) if name not in around else message("memo.attr_recursive")
        )
    if isinstance(found, types.FunctionType | staticmethod | classmethod):
        return message("memo.attr_function")
    is_stored = isinstance(found, types.MemberDescriptorType) or name in getattr(kind, "_fields", ())
    is_of_enum = issubclass(kind, enum.Enum) and name in ("name", "value")
    # The methods of tuples are written in C, and only read.
    is_builtin = isinstance(found, types.MethodDescriptorType)
    return (
        message("memo.attr_computed")
        if hasattr(found, "__get__") and not (is_stored or is_of_enum or is_builtin)
        else None
    )


def _refusal_of_property(kind: type, found: property, around: tuple[str, ...]) -> Message | None:
    try:
        reads = reads_of(body_of(found.fget, kind))
    except Impure as impure:
        return message("memo.attr_impure", why=impure.why)
    if reads.of_names or reads.of_functions:
        return message("memo.attr_outer")
    whys = (_refusal_of_attribute(kind, path[0], around) for path in sorted(reads.of_self))
    return next((message("memo.attr_reads", why=why) for why in whys if why is not None), None)


# What the names of a function stand for in the process that has it loaded.


def body_of(function: Any, owner: type | None = None) -> Body:
    """Raises Impure where the source cannot be had, or is another than what was loaded."""
    plain = _unwrapped(function)
    code = plain.__code__
    source = source_of(code, plain.__globals__)
    tree = parse(source)
    if tree is None:
        raise Impure(message("memo.source_unreadable"))
    node = definition_of(code, tree)
    again = next((item for item in _compiled_codes(source) if _first(item) == _first(code)), None)
    if not isinstance(node, ast.FunctionDef) or again is None or _words_of(again) != _words_of(code):
        raise Impure(message("memo.source_changed", function=plain.__qualname__))
    return Body(node, LoadedNames(plain, owner), owner is not None, code.co_filename)


@lru_cache(maxsize=16)
def _compiled_codes(source: str) -> list[CodeType]:
    try:
        return inner_codes(compile(source, "", "exec", dont_inherit=True))
    except (SyntaxError, ValueError):
        raise Impure(message("memo.source_unreadable")) from None


def _unwrapped(function: Any) -> FunctionType:
    """What torch's own decorators and ours are around; those of others may do anything."""
    while isinstance(function, FunctionType) and (wrapped := getattr(function, "__wrapped__", None)) is not None:
        if not os.path.abspath(function.__code__.co_filename).startswith((_torch_folder(), *OURS)):
            raise Impure(message("memo.wrapped", function=function.__qualname__))
        function = wrapped
    if not isinstance(function, FunctionType):
        raise Impure(message("memo.not_python", function=getattr(function, "__qualname__", function)))
    return function


def _torch_folder() -> str:
    return os.path.dirname(os.path.abspath(sys.modules["torch"].__file__ or "")) + os.sep


def _first(code: CodeType) -> tuple[str, int]:
    return code.co_name, code.co_firstlineno


def _words_of(code: CodeType) -> tuple[object, ...]:
    """All that it does, wherever it is written."""
    constants = [repr(constant) for constant in code.co_consts if not isinstance(constant, CodeType)]
    return code.co_code, code.co_names, code.co_varnames, constants, [_words_of(item) for item in inner_codes(code)]


class LoadedNames:
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
                raise Impure(message("memo.unbound", name=name)) from None
        found = self._globals.get(name, _MISSING)
        if found is _MISSING:
            found = vars(builtins).get(name, _MISSING)
        if found is _MISSING:
            raise Impure(message("memo.missing", name=name))
        return found

    def origin(self, path: NamePath) -> str | None:
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

    def called(self, path: NamePath, arguments: int) -> Body | None:
        written = ".".join(path)
        found, origin = self._found(path), self.origin(path)
        if origin is not None:
            _check_known(origin, found, arguments)
            return None
        if isinstance(found, FunctionType) and not _is_library(found):
            return body_of(found)
        raise Impure(message("memo.calls_impure", function=written, why=fault_of(path[-1])))

    def method(self, name: str) -> Body:
        found = inspect.getattr_static(self._owner, name, None)
        if self._owner is not None and isinstance(found, staticmethod):
            return body_of(found.__func__)
        if self._owner is None or not isinstance(found, FunctionType):
            raise Impure(message("memo.no_plain_method", method=name))
        return body_of(found, self._owner)

    def _found(self, path: NamePath) -> Any:
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
            raise Impure(message("memo.calls", function=name))
        return
    # Behind its inputs numpy takes the array to write into.
    most = getattr(found, "nin", 3 if name in NUMPY_OF_THREE else 2)
    if module == "numpy" and arguments > most:
        raise Impure(message("memo.may_write_argument", function=origin, arguments=arguments))


def _is_of(found: Any, module: str) -> bool:
    """Not a function of somebody else's that was put in its place."""
    library = module.partition(".")[0]
    home = getattr(found, "__module__", None) or library
    return isinstance(found, BuiltinFunctionType | type) or home.partition(".")[0] == library


def _is_library(function: FunctionType) -> bool:
    home = function.__module__ or ""
    return home.partition(".")[0] in LIBRARIES
