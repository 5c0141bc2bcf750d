"""The cases of every problem: `<family>/<name>.py` belongs to the module of that name in flatout.problems.

`CASES` are runs and `SOURCE_CASES` is code that has the problem, and as many that must stay quiet.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from flatout.problems.catalogue import Problem
from tests.cases.code import SourceCase
from tests.cases.evidence import Case


@dataclass(frozen=True, slots=True)
class Cases:
    runs: tuple[Case, ...]
    source: tuple[SourceCase, ...]


def cases_of(problem: Problem) -> Cases:
    module = importlib.import_module(f"{__name__}.{problem.family}.{problem.slug}")
    return Cases(getattr(module, "CASES", ()), getattr(module, "SOURCE_CASES", ()))
