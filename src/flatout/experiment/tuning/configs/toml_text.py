"""The place of a value in TOML: behind a key, dotted or not, under its table's head."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from flatout.experiment.tuning.configs.json_text import put
from flatout.experiment.tuning.configs.places import Key, NotReadable, NotThere, Place

_HEAD = re.compile(r"[ \t]*\[([^\[\]]+)\]")
_PART = r"""(?:"[^"\n]*"|'[^'\n]*'|[\w-]+)"""
_KEY = re.compile(rf"[ \t]*({_PART}(?:[ \t]*\.[ \t]*{_PART})*)[ \t]*=[ \t]*")


def find(text: str, key: Key) -> Place:
    _check_path(parsed(text), key)
    head: Key = ()
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        if found := _HEAD.match(text, at, end):
            head = _parts(found.group(1))
        elif found := _KEY.match(text, at, end):
            stop = _end_of_value(text, found.end())
            if (*head, *_parts(found.group(1))) == key:
                return Place(found.end(), stop)
            end = max(end, stop) if text.find("\n", stop) < 0 else text.find("\n", stop)
        at = end + 1
    raise NotReadable(f"{'.'.join(key)} stands within an inline table or an array of tables; give it a line of its own")


def written(value: str) -> str:
    """As TOML, where the user's text is not TOML already."""
    try:
        tomllib.loads(f"value = {value}")
        return value
    except ValueError:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def is_right(before: str, after: str, key: Key, value: str) -> bool:
    expected = parsed(before)
    put(expected, key, parsed(f"value = {value}")["value"])
    return expected == parsed(after)


def parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise NotReadable(str(error)) from error


def _check_path(tree: Any, key: Key) -> None:
    for depth, name in enumerate(key):
        if not isinstance(tree, dict) or name not in tree:
            raise NotThere(depth, 1, tree if isinstance(tree, dict) else ())
        tree = tree[name]


def _end_of_value(text: str, start: int) -> int:
    """An array or a text may go over several lines: the shortest beginning that is a value, without its comment."""
    end = start
    while True:
        newline = text.find("\n", end)
        end = len(text) if newline < 0 else newline
        try:
            tomllib.loads(f"value = {text[start:end]}")
            break
        except ValueError:
            if newline < 0:
                raise NotReadable(f"the value at line {text.count(chr(10), 0, start) + 1} has no end") from None
            end += 1
    whole = tomllib.loads(f"value = {text[start:end]}")
    # A `#` within a text is no comment: what can be cut off without a change is one.
    for at in (place.start() for place in re.finditer("#", text[start:end])):
        try:
            if tomllib.loads(f"value = {text[start : start + at]}") == whole:
                end = start + at
                break
        except ValueError:
            continue
    return start + len(text[start:end].rstrip())


def _parts(dotted: str) -> Key:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))
