"""How large the files are that a dataset names: a few of them are asked, once."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import PurePath
from typing import Any

_MOST_ATTRIBUTES = 64
_MOST_FILES = 6
_MOST_ENTRIES = 64
_DEEPEST = 3
_LONGEST = 4096


def file_sizes(dataset: Any) -> list[int]:
    """Bytes of some of the files in its lists of paths, or in the folders it names; empty where it names none."""
    try:
        stored = object.__getattribute__(dataset, "__dict__")
    except AttributeError:
        return []
    values = list(stored.values())[:_MOST_ATTRIBUTES]
    for value in values:
        if type(value) in (list, tuple):
            found = [size for path in _some(value) if (size := _size(path)) is not None]
            if found:
                return found
    for value in values:
        if _is_path(value):
            found = [size for path in _inside(str(value)) if (size := _size(path)) is not None]
            if found:
                return found
    return []


def _some(values: Any) -> Iterator[Any]:
    """Spread over the list; of a pair of path and label, the path."""
    every = max(1, len(values) // _MOST_FILES)
    for value in list(values[::every])[:_MOST_FILES]:
        parts = value if type(value) is tuple else (value,)
        yield from [part for part in parts if _is_path(part)][:1]


def _is_path(value: Any) -> bool:
    return isinstance(value, str | PurePath) and 0 < len(str(value)) < _LONGEST


def _inside(folder: str, depth: int = 0) -> list[str]:
    """Files of a folder, or of the first folder in it. Only its first entries are read: there may be millions."""
    try:
        with os.scandir(folder) as entries:
            seen = list(islice(entries, _MOST_ENTRIES))
        files = [entry.path for entry in seen if entry.is_file()]
        folders = sorted(entry.path for entry in seen if entry.is_dir())
    except (OSError, ValueError):
        return []
    if files or not folders or depth == _DEEPEST:
        return files[:_MOST_FILES]
    return _inside(folders[0], depth + 1)


def _size(path: Any) -> int | None:
    try:
        facts = os.stat(path)
    except (OSError, ValueError):
        return None
    return facts.st_size if stat.S_ISREG(facts.st_mode) else None
