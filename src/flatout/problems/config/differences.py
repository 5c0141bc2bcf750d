"""Configured against live, item by item. Shared by the problems about settings that never arrived."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from flatout.records.configured import Setting, Value


@dataclass(frozen=True, slots=True)
class Difference:
    setting: Setting
    live: Value

    @property
    def item(self) -> str:
        return self.setting.name


def place(found: Setting) -> str:
    """Where it is configured, in words."""
    if found.location is None:
        return f"command line: {found.written}"
    file = os.path.basename(found.location.file)
    return f"{file}:{found.location.line}" if found.location.line else f"{file}: {found.written}"


def evidence(found: Sequence[Difference]) -> dict[str, float | int | str]:
    """Every item with both values and where the first comes from, and all of them as a table."""
    values: dict[str, float | int | str] = {}
    for one in found:
        values[f"{one.item}_configured"] = _shown(one.setting.value)
        values[f"{one.item}_live"] = _shown(one.live)
        values[f"{one.item}_configured_at"] = place(one.setting)
    rows = [f"{one.item} | {_shown(one.setting.value)} | {_shown(one.live)}" for one in found]
    return {**values, "table": "\n".join(["item | configured | live", *rows])}


def describe(found: Sequence[Difference]) -> str:
    return ", ".join(
        f"{one.item} is configured as {_shown(one.setting.value)} but is {_shown(one.live)}" for one in found
    )


def _shown(value: Value) -> int | float | str:
    # JSON and tables say true and false in words, so that 1 and true do not look alike.
    return str(value).lower() if isinstance(value, bool) else value
