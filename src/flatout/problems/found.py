"""What a detector reports of a finding, and what several detectors say in the same words.

Code, family, title and remedy are the problem's; the catalogue adds them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

from flatout.model.edits import Edits
from flatout.records.evidence import Evidence
from flatout.records.message import Message, message
from flatout.records.report import Gain, Location
from flatout.records.source import Fix, Place, Related
from flatout.source.code import call_path
from flatout.source.flow.guards import ProgramPoint
from flatout.source.flow.values import Value
from flatout.source.syntax.edits import remove_statement
from flatout.source.training.loaders import Loader
from flatout.source.training.regions import Region

Severity = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundInRun:
    """The gain follows from what the change makes of the model of the step, and the severity from the gain, where none
    is given. What would gain nothing is not worth a finding.
    """

    evidence: dict[str, float | int | str]
    cause: Message
    change: Message | None
    location: Location | None = None
    edits: Edits | None = None
    predicted_gain: Gain | None = None
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


def found_in_step(region: Region, node: ast.AST, cause: Message, change: Message, **more: Any) -> FoundInSource:
    """At a node that runs in every step, with the calls that lead to it."""
    return FoundInSource(place=region.module.place(node), cause=cause, change=change, related=call_path(region), **more)


def fix_by_deleting(region: Region, point: ProgramPoint) -> Fix | None:
    """Where the call is a statement of its own. Not a safe one: something may have needed it."""
    statement = point.statement
    if not isinstance(statement, ast.Expr) or statement.value is not point.node:
        return None
    edit = remove_statement(region.module, statement)
    return None if edit is None else Fix(message("fix.delete_call"), (edit,), is_safe=False)


def loader_is_here(loader: Loader, words: str = "related.its_loader") -> tuple[Related]:
    return (Related(loader.place, message(words)),)


def where_written(value: Value | None, here: Place, words: str) -> tuple[Place, tuple[Related, ...]]:
    """Where a setting is written that takes effect `here`; and `here` beside it, if that is another place."""
    if value is None or value.is_direct or value.place == here:
        return here, ()
    return value.place, (Related(here, message(words)),)


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


# What takes less than this share of the step is not worth a finding.
WORTH = 0.03
# A general finding, whose cause no problem of the catalogue names, is made from this share of the step on, and of a
# part that keeps the run from being healthy by itself.
WORTH_GENERAL, KEEPS_FROM_HEALTH = 0.05, 0.10


def processors_floor_ms(run: Evidence) -> float:
    """No step is shorter than all CPUs together need for the work that the run's processes did in a step."""
    host = run.report.host
    if host is None or host.cpu_cores is None:
        return 0.0
    return min(run.step_ms, run.step_ms * host.cpu_cores / max(run.cpus, 1e-9))
