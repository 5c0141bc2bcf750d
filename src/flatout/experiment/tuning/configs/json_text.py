"""The place of a value in JSON."""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from flatout.experiment.tuning.configs.places import Key, NotReadable, NotThere, Place

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def find(text: str, key: Key) -> Place:
    parsed(text)
    start = _skip(text, 0)
    for depth, name in enumerate(key):
        members = _members(text, start)
        if name not in members:
            raise NotThere(depth, text.count("\n", 0, start) + 1, members)
        start = members[name]
    return Place(start, _DECODER.raw_decode(text, start)[1])


def written(value: str) -> str:
    """As JSON, where the user's text is not JSON already."""
    try:
        json.loads(value)
        return value
    except ValueError:
        return json.dumps(value)


def is_right(before: str, after: str, key: Key, value: str) -> bool:
    expected = parsed(before)
    put(expected, key, parsed(value))
    return bool(expected == parsed(after))


def put(tree: Any, key: Key, value: Any) -> None:
    for part in key[:-1]:
        tree = tree[part]
    tree[key[-1]] = value


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise NotReadable(f"line {line} is no JSON ({getattr(error, 'msg', error)})") from error


def _members(text: str, at: int) -> dict[str, int]:
    """Where the value of each member of an object begins."""
    found: dict[str, int] = {}
    if text[at] != "{":
        return found
    at = _skip(text, at + 1)
    while text[at] == '"':
        name, at = scanstring(text, at + 1)
        at = _skip(text, _skip(text, at) + 1)  # behind the colon
        found[name] = at
        at = _skip(text, _DECODER.raw_decode(text, at)[1])
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None  # it matches nothing, too
    return found.end()
