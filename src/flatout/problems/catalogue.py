"""Finds the problems: every module of the family folders that has a CODE.

A problem's module holds

- a docstring: the text of `flatout explain`, under the headings of HEADINGS,
- `CODE`; its title is in `flatout.words`, in both languages (see `flatout.words.render`),
- `in_run(run)` and `in_source(code)`: the findings of a run and of source; one of both may be missing,
- `REMEDY`, if flatout can do something about it from outside,
- `COMES_FROM`: codes of problems that explain this one away; next to one of them it is not reported,
- `COMES_FROM_HERE`: the same, if both are found at the same place,
- `HIDES = True`, if its remedy lets others bear a cost beside the training: the cost itself stays,
- `GENERAL = True`, if it tells where time goes whose cause it does not know: what another problem explains is left out.

Runs and code that have it, and such that must stay quiet, are in `tests/cases`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from flatout.errors import FlatoutError
from flatout.model.prediction import can_promise, predict, severity
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.records.evidence import Evidence
from flatout.records.message import Message
from flatout.records.report import Finding
from flatout.records.source import SourceFinding
from flatout.source.code import Code
from flatout.words import english

FAMILIES = ("input", "transfer", "sync", "host", "compute", "cadence", "memory", "config", "rank", "measuring")
HEADINGS = (
    "What it is",
    "Why the GPU idles",
    "The fix",
    "What to expect",
    "When it is fine",
)
# Between "Why the GPU idles" and "The fix", in this order, where it does.
IN_RUN = "How it shows in a run"
IN_SOURCE = "How it shows in source"


@dataclass(frozen=True, slots=True)
class Problem:
    code: str
    slug: str
    family: str
    title: str
    text: str
    remedy: str | None
    comes_from: tuple[str, ...]
    in_run: Callable[[Evidence], Iterable[FoundInRun]] | None
    in_source: Callable[[Code], Iterable[FoundInSource]] | None
    is_general: bool = False
    comes_from_here: tuple[str, ...] = ()
    hides: bool = False

    def found_in_run(self, run: Evidence) -> Iterator[Finding]:
        for found in self.in_run(run) if self.in_run is not None else ():
            gain = found.predicted_gain if found.edits is None else predict(run, found.edits)
            level = found.severity or (None if gain is None else severity(gain))
            if level is None:
                continue
            if found.edits is not None and not can_promise(run):
                gain = None
            yield Finding(
                code=self.code,
                family=self.family,
                title=self.title,
                severity=level,
                location=found.location,
                evidence=found.evidence,
                cause=found.cause,
                remedy=found.remedy or self.remedy,
                change=found.change,
                predicted_gain=gain,
            )

    def found_in_source(self, code: Code) -> Iterator[SourceFinding]:
        for found in self.in_source(code) if self.in_source is not None else ():
            yield SourceFinding(
                code=self.code,
                family=self.family,
                title=self.title if found.title is None else english(found.title),
                severity=found.severity,
                place=found.place,
                cause=found.cause,
                change=found.change,
                related=found.related,
                fix=found.fix,
                loader_setting=found.loader_setting,
            )


@cache
def problems() -> tuple[Problem, ...]:
    """All of them, by code."""
    found = [problem for family in FAMILIES for problem in _load_family(family)]
    return tuple(sorted(found, key=lambda problem: problem.code))


def problems_of_remedy(remedy: str) -> list[Problem]:
    """Those that name this remedy: as theirs, or as another one in their text."""
    return [problem for problem in problems() if problem.remedy == remedy or f"`{remedy}`" in problem.text]


def find_problem(name: str) -> Problem:
    """The problem of this code or name."""
    wanted = name.strip().lower().replace("-", "_")
    for problem in problems():
        if wanted in (problem.code.lower(), problem.slug):
            return problem
    raise FlatoutError(f"no problem is called {name!r}; `flatout explain` lists them")


def _load_family(family: str) -> list[Problem]:
    package = importlib.import_module(f"flatout.problems.{family}")
    found = []
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        if not hasattr(module, "CODE"):
            continue  # something its neighbours share
        found.append(
            Problem(
                code=module.CODE,
                slug=info.name,
                family=family,
                title=english(Message(f"{module.CODE.lower()}.title")),
                text=module.__doc__ or "",
                remedy=getattr(module, "REMEDY", None),
                comes_from=tuple(getattr(module, "COMES_FROM", ())),
                in_run=getattr(module, "in_run", None),
                in_source=getattr(module, "in_source", None),
                is_general=getattr(module, "GENERAL", False),
                comes_from_here=tuple(getattr(module, "COMES_FROM_HERE", ())),
                hides=getattr(module, "HIDES", False),
            )
        )
    return found
