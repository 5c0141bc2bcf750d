"""Records as JSON and back: a message is written in English, and what it consists of stands beside it under "facts".

`{"findings": [{"cause": "loading takes 47 ms"}], "facts": {"/findings/0/cause": {"id": …, "args": …}}}`: the keys of
"facts" are JSON pointers (RFC 6901). A reader that does not know them has the sentence; flatout has the message again,
and can say it in either language. Without messages there are no "facts".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ..records.message import Message, from_plain, to_plain, verbatim
from .render import english

FACTS = "facts"
_Record = TypeVar("_Record")


def encode(record: Any, *, only_finite: bool = True) -> dict[str, Any]:
    """A record, or a mapping with records in it, as JSON can hold it.

    A number that is not finite was not measured, so it is null, unless `only_finite` is False.
    """
    writer = _Writer(only_finite)
    value: dict[str, Any] = writer.plain(record, "")
    return {**value, FACTS: writer.facts} if writer.facts else value


def decode(kind: type[_Record], value: Mapping[str, Any], *, strict: bool = True) -> _Record:
    """The record that `encode` wrote, also one of an older or newer flatout: keys that are not known are left out.

    TypeError where a key is missing or, if `strict`, a value is not of its field's type: people edit such files.
    """
    made: _Record = _Reader(strict).record(kind, with_messages(value))
    return made


def with_messages(value: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON that `encode` made, with messages in the places that its "facts" name."""
    whole = deepcopy({name: item for name, item in value.items() if name != FACTS})
    facts = value.get(FACTS)
    for pointer, fact in facts.items() if isinstance(facts, Mapping) else ():
        _put(whole, pointer, fact)
    return whole


class _Writer:
    def __init__(self, only_finite: bool) -> None:
        self.facts: dict[str, Any] = {}
        self._only_finite = only_finite

    def plain(self, value: Any, pointer: str) -> Any:
        if isinstance(value, Message):
            if value:
                self.facts[pointer] = to_plain(value)
            return english(value)
        if isinstance(value, float):
            return value if math.isfinite(value) or not self._only_finite else None
        if is_dataclass(value) and not isinstance(value, type):
            value = {field.name: getattr(value, field.name) for field in fields(value)}
        if isinstance(value, Mapping):
            return {str(name): self.plain(item, f"{pointer}/{_escape(str(name))}") for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(item, f"{pointer}/{at}") for at, item in enumerate(value)]
        return value if value is None or isinstance(value, str | int | bool) else str(value)


class _Reader:
    def __init__(self, strict: bool) -> None:
        self._strict = strict

    def record(self, kind: Any, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise TypeError(f"{kind.__name__} is {value!r:.60}")
        hints = _hints(kind)
        return kind(**{name: self._field(name, hints[name], item) for name, item in value.items() if name in hints})

    def _field(self, name: str, hint: Any, value: Any) -> Any:
        try:
            return self.value(hint, value)
        except _Misfit:
            raise TypeError(f"{name} is {value!r:.60}") from None

    def value(self, hint: Any, value: Any) -> Any:
        """`value` as its field has it: lists as tuples, objects as records."""
        origin, parts = get_origin(hint), get_args(hint)
        if origin in (Union, UnionType):
            return self._first(parts, value)
        if hint is Message and isinstance(value, str):
            return verbatim(value)
        if is_dataclass(hint) and hint is not Message:
            return self.record(hint, value)
        if origin is tuple:
            return self._tuple(parts, value)
        if origin is dict and isinstance(value, dict):
            return {name: self.value(parts[1], item) for name, item in value.items()}
        if not self._strict or _fits(hint, origin, parts, value):
            return value
        raise _Misfit

    def _first(self, parts: tuple[Any, ...], value: Any) -> Any:
        if value is None and NoneType in parts:
            return None
        for part in parts:
            try:
                return self.value(part, value)
            except _Misfit:
                continue
        raise _Misfit

    def _tuple(self, parts: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise _Misfit
        kinds = parts[:1] * len(value) if parts[-1] is ... else parts
        if len(kinds) != len(value):
            raise _Misfit
        return tuple(map(self.value, kinds, value))


class _Misfit(Exception):
    """A value that is not of its field's type."""


def _fits(hint: Any, origin: Any, parts: tuple[Any, ...], value: Any) -> bool:
    if hint is Any or hint is object:
        return True
    if origin is Literal:
        return value in parts
    if hint in (int, float):
        # JSON writes 2.0 as 2 at times, and True is no number.
        return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
    if hint is str:
        return isinstance(value, str | Message)
    return isinstance(value, origin or hint)


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.init}


def _put(whole: Any, pointer: str, fact: Any) -> None:
    """Only a sentence is replaced: where none stands, the file was changed by hand."""
    try:
        *path, last = (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])
        for part in path:
            whole = whole[int(part) if isinstance(whole, list) else part]
        key = int(last) if isinstance(whole, list) else last
        if isinstance(whole[key], str):
            whole[key] = from_plain(fact)
    except (KeyError, IndexError, ValueError, TypeError):
        return


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
