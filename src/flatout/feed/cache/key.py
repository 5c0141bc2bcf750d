"""What a dataset is, as a short text: other data, other code or another transform gives another key.

Looks at the dataset's class and its source, at its attributes and theirs, at the transforms, at the globals that they
read, and at name, size and time of the files it names. Of very long lists of files, names are all taken and an even
choice is asked for size and time. Two datasets with one key would be given each other's samples: what cannot be read to
its end is equal to itself alone.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import inspect
import io
import logging
import marshal
import os
import secrets
import sys
import sysconfig
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .format import signature

_DEEPEST = 24
_MOST_FILES = 4096
_LONG = 4096
_MOST_ARRAY_BYTES = 2 << 30
_MOST_WATCHED_BYTES = 4 << 20
_SIMPLE = (int, float, complex, bool, str, bytes, type(None))
_CONTAINERS = (dict, list, tuple, set, frozenset)


def dataset_key(dataset: Any) -> str:
    """24 hex digits."""
    digest = _Digest()
    digest.text(signature(), sys.version, __name__)
    digest.value(dataset, 0)
    digest.files()
    return digest.hexdigest()[:24]


def contents(value: Any) -> str:
    """What a value holds, for a comparison within this process: of what is very large, signs of a change only."""
    digest = _Digest(is_quick=True)
    digest.value(value, 0)
    return digest.hexdigest()


class _Digest:
    def __init__(self, is_quick: bool = False) -> None:
        self._is_quick = is_quick
        self._most_bytes = _MOST_WATCHED_BYTES if is_quick else _MOST_ARRAY_BYTES
        # What stands for an array that is larger.
        self._beyond: Callable[[Any], str] = glimpse if is_quick else mark_of
        self._hash = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []
        self._paths: list[str] = []

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def text(self, *texts: str) -> None:
        for text in texts:
            self._bytes(text.encode(errors="surrogatepass"))

    def _bytes(self, data: Any) -> None:
        self._hash.update(len(data).to_bytes(8, "little"))
        self._hash.update(data)

    def value(self, value: Any, depth: int) -> None:
        if isinstance(value, _SIMPLE):
            self.text(type(value).__name__)
            self._bytes(value if isinstance(value, bytes) else repr(value).encode(errors="surrogatepass"))
            if isinstance(value, str) and _is_path(value):
                self._paths.append(value)
            return
        if id(value) in self._seen:
            self.text(f"again {self._seen[id(value)]}")
            return
        self._seen[id(value)] = len(self._seen)
        # Held until the end: the number of an object that is gone may come back.
        self._alive.append(value)
        self.text(f"{type(value).__module__}.{type(value).__qualname__}")
        if depth < _DEEPEST:
            self._composite(value, depth + 1)
        else:
            self.text(mark_of(value))

    def _composite(self, value: Any, depth: int) -> None:
        if _is_array(value):
            self._array(value, depth)
        elif isinstance(value, os.PathLike):
            self.value(os.fsdecode(value), depth)
        elif isinstance(value, functools.partial):
            self._all((value.func, value.args, value.keywords), 3, depth)
        elif isinstance(value, type):
            self._class(value, depth)
        elif isinstance(value, types.MethodType):
            self._all((value.__func__, value.__self__), 2, depth)
        elif isinstance(value, types.FunctionType):
            self._function(value, depth)
        elif isinstance(value, (types.ModuleType, types.BuiltinFunctionType)):
            self.text(value.__name__)
        elif isinstance(value, logging.Logger):
            self.text(value.name)
        elif isinstance(value, (torch.layout, torch.dtype, torch.device, torch.memory_format)):
            self.text(str(value))
        else:
            self._contents(value, depth)
            if type(value) not in _CONTAINERS:
                self._object(value, depth)

    def _contents(self, value: Any, depth: int) -> None:
        """Of a container, or of a class that is one."""
        if isinstance(value, dict):
            self._all((part for item in value.items() for part in item), len(value), depth)
        elif isinstance(value, (list, tuple)):
            self._long(value, depth) if len(value) > _LONG else self._all(value, len(value), depth)
        elif isinstance(value, (set, frozenset)):
            self._all(sorted(value, key=repr), len(value), depth)

    def _all(self, values: Iterable[Any], count: int, depth: int) -> None:
        self.text(str(count))
        for value in values:
            self.value(value, depth)

    def _long(self, values: Any, depth: int) -> None:
        """A list of all samples: in one go where it holds plain values."""
        try:
            plain = values
            # Version 2 writes equal values alike, whoever else refers to them.
            try:
                self._bytes(marshal.dumps(values, 2))
            except ValueError:
                plain = [_without_paths(value) for value in values]
                self._bytes(marshal.dumps(plain, 2))
        except ValueError:
            if self._is_quick:
                # Which objects they are; not what is in each.
                self._bytes(np.fromiter(map(id, values), np.uint64, len(values)).data)
            else:
                self._all(values, len(values), depth)
            return
        some = plain[:: max(1, len(plain) // _MOST_FILES)]
        self._paths += [
            text for item in some for text in (item if isinstance(item, (list, tuple)) else [item]) if _is_path(text)
        ]

    def _object(self, value: Any, depth: int) -> None:
        self._class(type(value), depth)
        attributes = dict(getattr(value, "__dict__", {}))
        for owner in type(value).__mro__:
            slots = owner.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if hasattr(value, name):
                    attributes[name] = getattr(value, name)
        for name in sorted(attributes):
            self.text(name)
            self.value(attributes[name], depth)
        if callable(getattr(value, "tobytes", None)):
            self._bytes(value.tobytes())  # images, and numbers of numpy's
        elif has_hidden_state(type(value)) and not isinstance(value, _CONTAINERS):
            self._all(hidden_parts(value), 1, depth)

    def _class(self, kind: type, depth: int) -> None:
        for owner in kind.__mro__:
            if owner.__module__ in ("builtins", "typing", "abc") or owner.__module__.startswith("torch."):
                continue
            self.text(f"{owner.__module__}.{owner.__qualname__}", _source_of(owner))
            if not is_of_library(sys.modules.get(owner.__module__)):
                for name, setting in settings_of(owner):
                    self.text(name)
                    self.value(setting, depth)

    def _function(self, function: types.FunctionType, depth: int) -> None:
        self.text(function.__module__ or "", function.__qualname__)
        self._code(function.__code__)
        cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        self._all((function.__defaults__, function.__kwdefaults__, cells), 3, depth)
        if not is_of_library(sys.modules.get(function.__module__ or "")):
            for name, value in globals_of(function.__code__, function.__globals__):
                self.text(name)
                self.value(value, depth)

    def _code(self, code: types.CodeType) -> None:
        self._bytes(code.co_code)
        self.text(*code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._code(constant)
            else:
                self.text(_constant(constant))

    def _array(self, array: Any, depth: int) -> None:
        self.text(str(array.dtype), str(tuple(array.shape)))
        is_tensor = isinstance(array, torch.Tensor)
        if not is_tensor and array.dtype.hasobject:
            self._contents(array.reshape(-1).tolist(), depth)
        elif isinstance(array, np.memmap):
            # What is in the file, by its name and time; and which part of it this is.
            self.value(str(array.filename), depth)
            self.text(str(array.strides), str(_offset_in_file(array)))
        elif array.nbytes > self._most_bytes or (is_tensor and array.device.type != "cpu"):
            self.text(self._beyond(array))
        elif is_tensor:
            whole = array.detach().resolve_conj().resolve_neg().contiguous()
            self._bytes(whole.reshape(-1).view(torch.uint8).numpy().data)
        else:
            self._bytes(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def files(self) -> None:
        """Size and time of what the dataset's texts name as files."""
        paths = sorted(set(self._paths))
        for path in paths[:: max(1, len(paths) // _MOST_FILES)]:
            try:
                facts = Path(path).stat()
            except (OSError, ValueError):
                continue
            self.text(path, str(facts.st_size), str(facts.st_mtime_ns))


def _without_paths(value: Any) -> Any:
    """Paths as text, in lists and tuples too."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [_without_paths(item) for item in value] if type(value) in (list, tuple) else value


def _is_array(value: Any) -> bool:
    """That is all in its bytes: of other layouts and classes, what pickle writes has all."""
    if isinstance(value, torch.Tensor):
        return value.layout is torch.strided and not value.is_quantized
    return type(value) in (np.ndarray, np.memmap)


def _offset_in_file(array: Any) -> int:
    whole = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    return int(array.offset + array.ctypes.data - whole.ctypes.data)


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and os.sep in value


def _is_filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


@functools.cache
def _source_of(kind: type) -> str:
    """The class's text, or where there is none (a notebook's, a generated one) what its functions compile to."""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        functions = [f for f in vars(kind).values() if isinstance(f, types.FunctionType)]
        return " ".join(f"{f.__name__}:{f.__code__.co_code.hex()}:{_constants(f.__code__)!r}" for f in functions)


def _constants(code: types.CodeType) -> list[str]:
    return [str(_constants(c)) if isinstance(c, types.CodeType) else _constant(c) for c in code.co_consts]


def _constant(value: Any) -> str:
    # A set's order depends on the process's hash seed.
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)


# State that Python's attributes do not show, of types written in C: `range(50)` and `range(50, 100)`, two pandas
# tables, two compiled patterns. What pickle would write tells them apart. What cannot be pickled (an open database)
# gets a mark: it is then equal to itself only, in this process and those forked from it.

_HEAP, _IMMUTABLE = 1 << 9, 1 << 8  # Py_TPFLAGS_HEAPTYPE, Py_TPFLAGS_IMMUTABLETYPE
# Of a class made in Python: its dictionary and its weak references.
_USUAL_BYTES, _SLOT_BYTES = 16, 8
_marks: dict[int, tuple[weakref.ref[Any], str]] = {}
_GLIMPSED = 1024
_LOCKS = (type(threading.Lock()), type(threading.RLock()))


def has_hidden_state(kind: type) -> bool:
    return any(_is_of_c(item) for item in kind.__mro__ if item is not object)


def _is_of_c(kind: type) -> bool:
    if not kind.__flags__ & _HEAP or kind.__flags__ & _IMMUTABLE:
        return True
    slots = kind.__dict__.get("__slots__", ())
    own = _USUAL_BYTES + _SLOT_BYTES * (1 if isinstance(slots, str) else len(slots))
    return bool(kind.__basicsize__ - (kind.__base__ or object).__basicsize__ > own)


def hidden_parts(value: Any) -> tuple[Any, ...]:
    """Values that tell it from others of its type."""
    if isinstance(value, _LOCKS):
        return ()
    if isinstance(value, logging.Logger):
        return (value.name,)
    if isinstance(value, io.IOBase) and not isinstance(value, io.BytesIO | io.StringIO):
        return (str(getattr(value, "name", "")),)
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:  # whatever a type may say that cannot be pickled
        return (mark_of(value),)
    if isinstance(reduced, str):
        return (reduced,)
    made, arguments, *rest = reduced
    # A state, and what has to be added item by item.
    items = [None if part is None else list(part) for part in rest[1:3]]
    return (getattr(made, "__qualname__", type(made).__name__), arguments, rest[:1], items)


def mark_of(value: Any) -> str:
    """The same for this object as long as it lives, and for no other."""
    found = _marks.get(id(value))
    if found is not None and found[0]() is value:
        return found[1]
    mark = secrets.token_hex(8)
    number = id(value)
    try:
        _marks[number] = (weakref.ref(value, lambda gone: _forget(number, gone)), mark)
    except TypeError:
        pass  # then it is new every time
    return mark


def glimpse(array: Any) -> str:
    """Of a large array: what torch counts its changes by; of numpy's, which has no such count, some of its values."""
    if hasattr(array, "_version"):
        return f"{array.data_ptr()} {array._version}"
    some = array.reshape(-1) if array.flags.c_contiguous else array
    return f"{array.ctypes.data} {some[:: max(1, len(some) // _GLIMPSED)].tobytes().hex()}"


def _forget(number: int, gone: Any) -> None:
    if number in _marks and _marks[number][0] is gone:
        del _marks[number]


# What the user's own classes and functions read besides their arguments: class settings, and globals.

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
