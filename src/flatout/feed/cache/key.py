"""What a dataset is, as a short text: other data, other code or another transform gives another key.

Looks at the dataset's class and its source, at its attributes and theirs, at the transforms, at the globals that they
read, and at name, size and time of the files it names. Of very long lists of files, names are all taken and an even
choice is asked for size and time. Two datasets with one key would be given each other's samples: what cannot be read to
its end is equal to itself alone.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
import marshal
import os
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .format import signature
from .hidden import glimpse, has_hidden_state, hidden_parts, mark_of
from .reads import globals_of, is_of_library, settings_of

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
    return [_without_paths(one) for one in value] if type(value) in (list, tuple) else value


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
