"""Reads `--knob NAME=VALUES`: a remedy, a flag of the script (`--window=8,7,6`) or a key of a config file.

Values are separated by commas that stand outside brackets and quotes; `8..64` are the whole numbers from 8 to 64, and
`8..64..8` every eighth of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from flatout.errors import FlatoutError
from flatout.records.tune import Kind, Knob
from flatout.source.syntax.config_files import CONFIG_SUFFIXES

AUTO = "auto"
_HOW = "write it as batch_size=4,8,16 or '--window=8,7,6' or 'config.yaml:MODEL.DEPTH=2,4'"
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(\d+))?")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?")
_OPENING, _CLOSING, _QUOTES = "([{", ")]}", "\"'"
_MOST_VALUES = 10_000


@dataclass(frozen=True, slots=True)
class Written:
    """A knob as the user wrote it."""

    name: str
    kind: Kind
    target: str
    values: tuple[Any, ...]
    file: str = ""


def read(word: str) -> Written:
    """Raises FlatoutError where it cannot be understood."""
    name, equals, text = word.partition("=")
    name = name.strip()
    if not name or not equals:
        raise FlatoutError(f"--knob {word!r}: {_HOW}")
    values = tuple(_values(word, text))
    if not values:
        raise FlatoutError(f"--knob {word!r} has no values: {_HOW}")
    double = next((value for at, value in enumerate(values) if value in values[:at]), None)
    if double is not None:
        raise FlatoutError(f"--knob {word!r} names the value {double!r} twice; name it once")
    if name.startswith("-"):
        return Written(name, "flag", name, values)
    file, colon, key = name.rpartition(":")
    if colon:
        if not file.lower().endswith(CONFIG_SUFFIXES) or not key.strip():
            raise FlatoutError(f"--knob {word!r}: {file!r} is no config file ({', '.join(CONFIG_SUFFIXES)}) with a key")
        return Written(name, "config", key.strip(), values, file)
    return Written(name, "remedy", name, values)


def distinct(knobs: Iterable[Knob]) -> tuple[Knob, ...]:
    """All of them; two that turn the same thing are a mistake."""
    found: dict[tuple[str, str], Knob] = {}
    for knob in knobs:
        place = (knob.file, knob.target)
        if place in found:
            raise FlatoutError(f"--knob {knob.name} is given twice; put all its values into one")
        found[place] = knob
    return tuple(found.values())


def _values(word: str, text: str) -> Iterator[Any]:
    for part in _split(word, text):
        if found := _RANGE.fullmatch(part):
            yield from _range(word, *found.groups())
        else:
            yield _value(part)


def _range(word: str, first: str, last: str, step: str | None) -> range:
    numbers = range(int(first), int(last) + 1, max(1, int(step or 1)))
    if not numbers or len(numbers) > _MOST_VALUES:
        raise FlatoutError(f"--knob {word!r}: {first}..{last} must go upwards and hold at most {_MOST_VALUES:,} values")
    return numbers


def _value(text: str) -> Any:
    """A number where it would be written back as it stands; all else stays as the user wrote it."""
    found = _NUMBER.fullmatch(text)
    if found is None or len(text) > 15:
        return text
    number = float(text) if found.group(1) else int(text)
    return number if str(number) == text else text


def _split(word: str, text: str) -> list[str]:
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in _QUOTES:
            quote = sign
        elif sign in _OPENING:
            depth += 1
        elif sign in _CLOSING:
            depth -= 1
        if sign == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    if depth or quote:
        raise FlatoutError(f"--knob {word!r}: a bracket or quote is not closed")
    stripped = [part.strip() for part in parts]
    if not all(stripped):
        raise FlatoutError(f"--knob {word!r}: there is an empty value between its commas")
    return stripped
