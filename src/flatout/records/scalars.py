"""A run as curves over its steps, for the tools in which people keep their losses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scalar:
    """One curve: step (counted from 1), calendar time and value of each point, with the unit in the name."""

    name: str
    steps: tuple[int, ...]
    unix_s: tuple[float, ...]
    values: tuple[float, ...]
