"""A value that somebody set for a run, before anything is known of whether it arrived."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.records.report import Location

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Setting:
    """`name` is what it means (num_workers), `written` how it was written (data.workers_per_gpu)."""

    name: str
    written: str
    value: Value
    # None: the command line.
    location: Location | None = None
    # What it took the place of, in a config that its own builds on.
    over: Setting | None = None


@dataclass(frozen=True, slots=True)
class Configured:
    """What the run was given, and how the script makes its training loader."""

    settings: tuple[Setting, ...] = ()
    # Keywords of the call that made the loader: "literal" or "computed"; those it does not have are absent.
    # None where the call cannot be read, or may hand on more than it shows.
    call: dict[str, str] | None = None

    def setting(self, name: str) -> Setting | None:
        return next((one for one in self.settings if one.name == name), None)
