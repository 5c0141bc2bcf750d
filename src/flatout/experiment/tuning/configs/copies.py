"""A config file with other values, as a text: only these values change, and what came out is read again to be sure."""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from flatout.errors import FlatoutError
from flatout.experiment.tuning.configs import json_text, python_text, toml_text, yaml_text
from flatout.experiment.tuning.configs.places import Key, NotReadable, NotThere, Place


class Form(Protocol):
    """What is known of a kind of file. All raise NotThere or NotReadable."""

    def find(self, text: str, key: Key) -> Place: ...

    def written(self, value: str) -> str:
        """The user's text as this kind of file has it."""

    def is_right(self, before: str, after: str, key: Key, value: str) -> bool:
        """Whether `after` has the value at the key, and says otherwise what `before` said."""


_FORMS: dict[str, Form] = {
    ".json": json_text,
    ".py": python_text,
    ".toml": toml_text,
    ".yaml": yaml_text,
    ".yml": yaml_text,
}
# Keys that name files beside the config itself, which its copy no longer lies beside.
_BASES = ("_base_", "_BASE_", "BASE")


def edit_config(file: Path, values: Mapping[str, Any]) -> str:
    """The text with these values, by keys with dots. Raises FlatoutError with the file and, where known, the line."""
    form = _FORMS[file.suffix.lower()]
    text = _text(file)
    for name, value in values.items():
        text = _with(form, file, text, tuple(name.split(".")), form.written(_plain(value)))
    return _with_bases(form, file, text)


def check_config(file: Path, name: str, values: Sequence[Any]) -> None:
    """Whether every value can be written there; before the first trial is made."""
    for value in values:
        edit_config(file, {name: value})


def _plain(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except OSError as error:
        raise FlatoutError(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FlatoutError(f"{file} cannot be read: it is no UTF-8") from error


def _with(form: Form, file: Path, text: str, key: Key, value: str) -> str:
    try:
        place = form.find(text, key)
        after = text[: place.start] + place.before + value + text[place.end :]
        if not form.is_right(text, after, key, value):
            raise NotReadable(f"{'.'.join(key)} cannot be set to {value!r} without changing more than that")
    except NotThere as missing:
        raise FlatoutError(_missing(file, key, missing)) from None
    except NotReadable as error:
        raise FlatoutError(f"{file}: {error}") from None
    return after


def _missing(file: Path, key: Key, missing: NotThere) -> str:
    wanted = key[missing.depth]
    near = difflib.get_close_matches(wanted, missing.keys, 3, 0.5) or list(missing.keys)[:8]
    under = f" under {'.'.join(key[: missing.depth])!r}" if missing.depth else ""
    there = f"; there are {', '.join(near)}" if near else ""
    return f"{file}:{missing.line} has no key {wanted!r}{under}{there}"


def _with_bases(form: Form, file: Path, text: str) -> str:
    """A base named from the config's own folder is named in full, since the copy lies elsewhere."""
    for name in _BASES:
        try:
            place = form.find(text, (name,))
        except (NotThere, NotReadable):
            continue
        written = text[place.start : place.end].strip()
        full = _in_full(written, file.parent)
        if full != written:
            text = text[: place.start] + place.before + full + text[place.end :]
    return text


def _in_full(written: str, folder: Path) -> str:
    """Names of files that lie there, in a value as it is written: a text or a list of them."""
    try:
        names = ast.literal_eval(written)
    except (ValueError, SyntaxError):
        names = written
    bases = [names] if isinstance(names, str) else names if isinstance(names, list | tuple) else []
    for name in dict.fromkeys(one for one in bases if isinstance(one, str) and one):
        if not os.path.isabs(name) and (folder / name).is_file():
            written = written.replace(name, os.path.abspath(folder / name))
    return written
