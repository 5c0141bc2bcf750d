"""The present values of what a function reads besides its arguments: dotted paths from `self` or from a global name.

A path is followed as long as it leads through plain attributes, which run no code when they are read. What is computed
on reading (a property, a tensor's shape) follows from the object that has it, so that object stands for it.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
from typing import Any

from .loaded_names import Loaded, body_of
from .purity import Impure, Path, reads_of

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


def value_at(torch: Any, root: Any, path: Path) -> Any:
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


def value_of_name(torch: Any, names: Loaded, path: Path) -> Any:
    """Raises Impure where the name is gone."""
    return value_at(torch, names.root(path[0]), path[1:])


def refusal_of_class(kind: type, attributes: set[str]) -> str | None:
    """Why objects of this class cannot stand for their content alone: reading one of these attributes does more."""
    lookup: Any = kind.__getattribute__
    if lookup not in _PLAIN_LOOKUP or any("__getattr__" in vars(owner) for owner in kind.__mro__):
        return f"a {kind.__name__} computes its attributes"
    operators = [name for owner in kind.__mro__ for name, value in vars(owner).items() if _is_own_operator(name, value)]
    if operators:
        return f"{kind.__name__}.{operators[0]} is a function of yours"
    for name in sorted(attributes):
        why = _refusal_of_attribute(kind, name, ())
        if why is not None:
            return f"{kind.__name__}.{name} {why}"
    return None


def _is_own_operator(name: str, value: Any) -> bool:
    """What the user has written for len(x), x[i], x == y and the like; not what dataclasses generate."""
    if not (name.startswith("__") and isinstance(value, types.FunctionType)) or name in _NEVER_RUN:
        return False
    is_generated = value.__code__.co_filename in ("<string>", dataclasses.__file__)
    return not is_generated and value.__module__.partition(".")[0] not in _STANDARD


def _refusal_of_attribute(kind: type, name: str, around: tuple[str, ...]) -> str | None:
    found = inspect.getattr_static(kind, name, None)
    if isinstance(found, property):
        return _refusal_of_property(kind, found, (*around, name)) if name not in around else "hangs on itself"
    if isinstance(found, types.FunctionType | staticmethod | classmethod):
        return "is a function of yours"
    is_stored = isinstance(found, types.MemberDescriptorType) or name in getattr(kind, "_fields", ())
    is_of_enum = issubclass(kind, enum.Enum) and name in ("name", "value")
    # The methods of tuples are written in C, and only read.
    is_builtin = isinstance(found, types.MethodDescriptorType)
    return "is computed" if hasattr(found, "__get__") and not (is_stored or is_of_enum or is_builtin) else None


def _refusal_of_property(kind: type, found: property, around: tuple[str, ...]) -> str | None:
    try:
        reads = reads_of(body_of(found.fget, kind))
    except Impure as impure:
        return f"does more than compute: {impure}"
    if reads.of_names or reads.of_functions:
        return "hangs on more than its object"
    whys = (_refusal_of_attribute(kind, path[0], around) for path in sorted(reads.of_self))
    return next((f"reads an attribute that {why}" for why in whys if why is not None), None)
