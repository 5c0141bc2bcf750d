"""What a dataset is, as a short text: other data, other code or another transform gives another key.

Looks at the dataset's class and its source, at its attributes and theirs, at the transforms, and at name, size and time
of the files it names. Of very long lists of files, names are all taken and an even choice is asked for size and time.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import marshal
import os
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .format import signature

_DEEPEST = 12
_MOST_FILES = 4096
_LONG = 4096
_MOST_ARRAY_BYTES = 16 << 20
_SIMPLE = (int, float, complex, bool, str, bytes, type(None))


def dataset_key(dataset: Any) -> str:
    """24 hex digits."""
    digest = _Digest()
    digest.text(signature(), sys.version, __name__)
    digest.value(dataset, 0)
    digest.files()
    return digest.hexdigest()[:24]


class _Digest:
    def __init__(self) -> None:
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

    def _composite(self, value: Any, depth: int) -> None:
        if isinstance(value, (torch.Tensor, np.ndarray)):
            self._array(value)
        elif isinstance(value, os.PathLike):
            self.value(os.fsdecode(value), depth)
        elif isinstance(value, dict):
            self._all((part for item in value.items() for part in item), len(value), depth)
        elif isinstance(value, (list, tuple)):
            self._long(value, depth) if len(value) > _LONG else self._all(value, len(value), depth)
        elif isinstance(value, (set, frozenset)):
            self._all(sorted(value, key=repr), len(value), depth)
        elif isinstance(value, functools.partial):
            self._all((value.func, value.args, value.keywords), 3, depth)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, types.MethodType):
            self._all((value.__func__, value.__self__), 2, depth)
        elif isinstance(value, types.FunctionType):
            self._function(value, depth)
        elif isinstance(value, (types.ModuleType, types.BuiltinFunctionType)):
            self.text(value.__name__)
        else:
            self._object(value, depth)

    def _all(self, values: Iterable[Any], count: int, depth: int) -> None:
        self.text(str(count))
        for value in values:
            self.value(value, depth)

    def _long(self, values: Any, depth: int) -> None:
        """A list of all samples: in one go where it holds plain values, else by an even choice of it."""
        some = values[:: max(1, len(values) // _MOST_FILES)]
        try:
            # Version 2 writes equal values alike, whoever else refers to them.
            self._bytes(marshal.dumps(values, 2))
        except ValueError:
            self._all(some, len(values), depth)
            return
        self._paths += [
            text for item in some for text in (item if isinstance(item, (list, tuple)) else [item]) if _is_path(text)
        ]

    def _object(self, value: Any, depth: int) -> None:
        self._class(type(value))
        attributes = dict(getattr(value, "__dict__", {}))
        for owner in type(value).__mro__:
            slots = owner.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if hasattr(value, name):
                    attributes[name] = getattr(value, name)
        for name in sorted(attributes):
            self.text(name)
            self.value(attributes[name], depth)

    def _class(self, kind: type) -> None:
        for owner in kind.__mro__:
            if owner.__module__ in ("builtins", "typing", "abc") or owner.__module__.startswith("torch."):
                continue
            self.text(f"{owner.__module__}.{owner.__qualname__}", _source_of(owner))

    def _function(self, function: types.FunctionType, depth: int) -> None:
        self.text(function.__module__ or "", function.__qualname__)
        self._code(function.__code__)
        cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        self._all((function.__defaults__, function.__kwdefaults__, cells), 3, depth)

    def _code(self, code: types.CodeType) -> None:
        self._bytes(code.co_code)
        self.text(*code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._code(constant)
            else:
                self.text(_constant(constant))

    def _array(self, array: Any) -> None:
        self.text(str(array.dtype), str(tuple(array.shape)))
        if isinstance(array, torch.Tensor):
            if array.device.type != "cpu" or array.layout is not torch.strided or not array.numel():
                return
            array = array.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        elif array.dtype.hasobject:
            self.text(repr(array[:_MOST_FILES]))
            return
        else:
            array = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        step = max(1, array.size // _MOST_ARRAY_BYTES)
        self._bytes(np.ascontiguousarray(array[::step]).data)

    def files(self) -> None:
        """Size and time of what the dataset's texts name as files."""
        paths = sorted(set(self._paths))
        for path in paths[:: max(1, len(paths) // _MOST_FILES)]:
            try:
                facts = Path(path).stat()
            except (OSError, ValueError):
                continue
            self.text(path, str(facts.st_size), str(facts.st_mtime_ns))


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
