"""Configured against live, item by item. Shared by the problems about settings that never arrived."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from flatout.records.evidence import Setting, Value
from flatout.records.message import Message, message, verbatim
from flatout.words import english


@dataclass(frozen=True, slots=True)
class Difference:
    setting: Setting
    live: Value

    @property
    def item(self) -> str:
        return self.setting.name


def place(setting: Setting) -> Message:
    """Where it is configured."""
    if setting.location is None:
        return message("config.on_command_line", option=setting.written)
    file = os.path.basename(setting.location.file)
    line = setting.location.line
    return verbatim(f"{file}:{line}" if line else f"{file}: {setting.written}")


def evidence(found: Sequence[Difference]) -> dict[str, float | int | str]:
    """Every item with both values and where the first comes from, and all of them as a table."""
    values: dict[str, float | int | str] = {}
    for differs in found:
        values[f"{differs.item}_configured"] = _as_text(differs.setting.value)
        values[f"{differs.item}_live"] = _as_text(differs.live)
        values[f"{differs.item}_configured_at"] = english(place(differs.setting))
    rows = [f"{differs.item} | {_as_text(differs.setting.value)} | {_as_text(differs.live)}" for differs in found]
    return {**values, "table": "\n".join(["item | configured | live", *rows])}


def describe(found: Sequence[Difference]) -> tuple[Message, ...]:
    return tuple(
        message(
            "config.difference",
            setting=differs.item,
            configured=_as_text(differs.setting.value),
            live=_as_text(differs.live),
        )
        for differs in found
    )


def _as_text(value: Value) -> int | float | str:
    # JSON and tables say true and false in words, so that 1 and true do not look alike.
    return str(value).lower() if isinstance(value, bool) else value
