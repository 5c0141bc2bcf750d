"""A profile: which remedies a run is to have, from `flatout.toml` and `--remedy`, checked before anything starts.

    [remedies]
    loader.workers = 8
    precision = "bf16"                 # the same as precision.bf16 = true
    loader.cache = { budget = "20GB" }

A mistake is one line with the file and the line it is in. Of two remedies that exclude each other the later one holds.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatout.errors import FlatoutError
from flatout.records.message import Message, message
from flatout.remedies.catalogue import Remedy, known

_TABLE = "remedies"
_TABLE_HEAD = re.compile(r"\s*\[([^\[\]]+)\]")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)\s*=""")
_PART = re.compile(r"""\s*("[^"]*"|'[^']*'|[\w-]+)\s*(?:\.|$)""")


@dataclass(frozen=True, slots=True)
class Profile:
    """What to apply, by the remedies' ids and in their order, and what there is to say about it."""

    values: dict[str, Any]
    notices: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class _Wish:
    """One remedy as somebody wrote it; `place` begins a message about it."""

    name: str
    written: object
    place: str


def read_profile(file: Path | None, words: Sequence[str] | Mapping[str, object]) -> Profile:
    """What `--with FILE` and every `--remedy ID=VALUE` ask for; the command line wins. Raises FlatoutError.

    `words` of somebody's own code are values by remedy.
    """
    named = [_Wish(name, value, name) for name, value in words.items()] if isinstance(words, Mapping) else None
    wishes = [*(_in_file(file) if file is not None else ()), *(named or _on_command_line(words))]
    values: dict[str, Any] = {}
    for wish in wishes:
        remedy, written = _remedy(wish)
        try:
            value = remedy.value.read(written)
        except ValueError as error:
            raise FlatoutError(f"{wish.place}: {remedy.id} {error}") from None
        values.pop(remedy.id, None)  # what is named again counts from where it is named last
        values[remedy.id] = value
    return _resolve_conflicts({name: value for name, value in values.items() if value is not False})


def _resolve_conflicts(values: Mapping[str, Any]) -> Profile:
    """Of two that exclude each other the later holds."""
    remedies, held, notices = known(), dict(values), []
    for name in reversed(list(values)):
        for other in list(held):
            excluded = other in remedies[name].conflicts or name in remedies[other].conflicts
            if name in held and other != name and excluded:
                del held[other]
                notices.append(message("profile.conflict", dropped=other, kept=name))
    order = {remedy: place for place, remedy in enumerate(remedies)}
    return Profile(dict(sorted(held.items(), key=lambda pair: order[pair[0]])), tuple(reversed(notices)))


def _remedy(wish: _Wish) -> tuple[Remedy, object]:
    """`precision = "bf16"` names the remedy precision.bf16 as well."""
    remedies = known()
    if wish.name in remedies:
        return remedies[wish.name], wish.written
    joined = f"{wish.name}.{wish.written}"
    if isinstance(wish.written, str) and joined in remedies:
        return remedies[joined], True
    raise FlatoutError(f"{wish.place}: no remedy is called {wish.name!r}; there are {', '.join(sorted(remedies))}")


def _on_command_line(words: Iterable[str]) -> Iterator[_Wish]:
    for word in words:
        name, equals, written = word.partition("=")
        if not name.strip():
            raise FlatoutError(f"--remedy {word!r}: write it as ID=VALUE, for example loader.workers=8")
        yield _Wish(name.strip(), written.strip() if equals else "true", f"--remedy {word}")


def _in_file(file: Path) -> Iterator[_Wish]:
    try:
        text = file.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise FlatoutError(f"{file} cannot be read: {error}") from error
    table = tables.get(_TABLE)
    if not isinstance(table, dict):
        raise FlatoutError(f"{file} has no [{_TABLE}] table, so there is nothing to apply")
    for path, written in _leaves(table, ()):
        line = _line_of(text, (_TABLE, *path))
        yield _Wish(".".join(path), written, f"{file}:{line}" if line else str(file))


def _leaves(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    """TOML makes tables of dotted keys: `loader.workers = 8` is {"loader": {"workers": 8}}."""
    remedies = known()
    for key, value in table.items():
        here = (*path, key)
        if isinstance(value, dict) and ".".join(here) not in remedies:
            yield from _leaves(value, here)
        else:
            yield here, value


def _line_of(text: str, path: tuple[str, ...]) -> int | None:
    """The line that gives the value at `path`, or the table it is in."""
    head: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if found := _TABLE_HEAD.match(line):
            head = _parts(found.group(1))
            if head == path:
                return number
        elif found := _KEY.match(line):
            key = (*head, *_parts(found.group(1)))
            if key == path[: len(key)]:
                return number
    return None


def _parts(dotted: str) -> tuple[str, ...]:
    """`"a.b".c` → a.b, c; a quoted id is one key to TOML, but the remedy's name to us."""
    return tuple(found.group(1).strip("\"'") for found in _PART.finditer(dotted))


# Writes a profile as `flatout.toml`, with the figures that speak for it as comments.


def profile_toml(
    values: Mapping[str, Any], comments: Sequence[str] = (), notes: Mapping[str, str] | None = None
) -> str:
    """`comments` stand above the table, `notes` behind the remedies they are about."""
    lines = [*(f"# {comment}" for comment in comments), f"[{_TABLE}]"]
    for name, value in values.items():
        note = (notes or {}).get(name)
        lines.append(f"{name} = {_value(value)}" + (f"  # {note}" if note else ""))
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{name} = {_value(item)}" for name, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    # A JSON string is a TOML string as well.
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
