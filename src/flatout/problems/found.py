"""What a detector reports of a finding, and what several detectors say in the same words.

Code, family, title and remedy are the problem's; the catalogue adds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

from flatout.records.message import Message, message
from flatout.records.report import Gain, Location
from flatout.records.source import Fix, Place, Related
from flatout.source.flow.values import Value
from flatout.source.training.regions import Region

Severity = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundInRun:
    """The severity follows from the gain where none is given; without either it is medium."""

    location: Location | None
    evidence: dict[str, float | int | str]
    cause: Message
    change: Message | None
    predicted_gain: Gain | None
    severity: Severity | None = None
    # Of this one, where others of its problem have none.
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundInSource:
    """`cause` says what is wrong here, `change` what to write instead, `fix` how flatout can write it.

    A hint is about nothing that is wrong: about something that would make most trainings faster and is not used.
    """

    place: Place
    cause: Message
    change: Message
    severity: Severity | Literal["hint"] = "medium"
    related: tuple[Related, ...] = ()
    fix: Fix | None = None
    # The setting of a DataLoader that the change is about.
    loader_setting: str | None = None
    # Where the problem's own title would not fit.
    title: Message | None = None


def step_of(region: Region) -> Message:
    """Every step, and of which training loop."""
    root = region.root
    if root.loop is None:
        return message("problems.step_of_function", function=root.function.qualified)
    place = root.module.at(root.loop.lineno)
    if root.module is region.module:
        return message("problems.step_of_loop", line=place.line)
    return message("problems.step_of_loop_in_file", file=place.file, line=place.line)


def setting_words(name: str, value: Value | None) -> Message:
    """What a setting is where it is made, and what sets it: a call without it has `value` None."""
    if value is None:
        return message("problems.setting_missing", setting=name)
    return message("problems.setting_is", setting=value.how or name, value=value.value)


def join_words(parts: Sequence[Message]) -> Message:
    """Several, of which each stands for itself, as one: with semicolons between them."""
    return reduce(lambda first, second: message("problems.both", first=first, second=second), parts)
