"""A log of a form we do not know, read by the user's own regular expression."""

from __future__ import annotations

import re
from typing import Any

from flatout.diagnose.logs.clock import stamp
from flatout.diagnose.logs.readings import Reading
from flatout.errors import FlatoutError

_FIELDS = {
    "step": "step",
    "its": "it_per_s",
    "samples": "samples_per_s",
    "time": "time_s",
    "data_time": "data_s",
    "loss": "loss",
    "batch": "batch",
}
_RATES = {"its", "samples", "time"}


class Pattern:
    """Named groups: step, its (steps/s), samples (samples/s), time and data_time (seconds a step), loss, batch."""

    def __init__(self, expression: str) -> None:
        try:
            self._pattern = re.compile(expression)
        except re.error as error:
            raise FlatoutError(f"--pattern {expression!r} is no regular expression: {error}") from error
        names = set(self._pattern.groupindex)
        known = ", ".join(_FIELDS)
        if unknown := sorted(names - set(_FIELDS)):
            raise FlatoutError(f"--pattern names the unknown group {unknown[0]!r}; known are {known}")
        if not names & (_RATES | {"step"}):
            raise FlatoutError(f"--pattern needs a named group such as (?P<its>[\\d.]+); known are {known}")
        self._names = sorted(names)

    def read(self, number: int, text: str) -> Reading | None:
        match = self._pattern.search(text)
        if match is None:
            return None
        figures: dict[str, Any] = {}
        for name in self._names:
            try:
                figures[_FIELDS[name]] = float((match[name] or "").replace(",", ""))
            except ValueError:
                continue
        when = stamp(text)
        return Reading(line=number, source="pattern", stamp_s=when[0] if when else None, **figures) if figures else None
