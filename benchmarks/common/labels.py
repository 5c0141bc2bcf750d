"""Lines of public training code, judged by reading them: what `flatout check` should say there, and where nothing.

A label holds a line number and a hash of the line, and no text of the code. The hash finds a line that has moved.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.common.child import ROOT

LABELS = ROOT / "benchmarks" / "check_labels"
# The blind set was labelled later, when the other two had served to mend the detectors.
Half = Literal["dev", "heldout", "blind"]
HALVES: tuple[Half, ...] = ("dev", "heldout", "blind")


@dataclass(frozen=True, slots=True)
class Spot:
    """A line, or a statement down to `until`. `others` are lines where the same thing may as well be said."""

    line: int
    digest: str
    until: int = 0
    others: tuple[int, ...] = ()

    def holds(self, line: int) -> bool:
        return self.line <= line <= max(self.line, self.until) or line in self.others


@dataclass(frozen=True, slots=True)
class Expected:
    """An anti-pattern. Any one of the codes names it."""

    spot: Spot
    codes: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Quiet:
    """A control: none of these codes may be said here; no code at all where none is given."""

    spot: Spot
    codes: tuple[str, ...]
    why: str

    def forbids(self, code: str) -> bool:
        return not self.codes or code in self.codes


@dataclass(frozen=True, slots=True)
class Judged:
    """A finding that no label asked for, read and judged afterwards."""

    spot: Spot
    code: str
    is_true: bool
    why: str


@dataclass(frozen=True, slots=True)
class LabelledFile:
    path: str
    field: str
    expected: tuple[Expected, ...]
    quiet: tuple[Quiet, ...]
    judged: tuple[Judged, ...]


@dataclass(frozen=True, slots=True)
class LabelledPackage:
    name: str
    version: str
    files: tuple[LabelledFile, ...]
    is_blind: bool = False

    @property
    def folder(self) -> str:
        return f"{self.name}-{self.version}"

    @property
    def half(self) -> Half:
        """By the name alone, so that nobody chose what is held out; the blind set is marked in its files."""
        if self.is_blind:
            return "blind"
        return "dev" if int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % 2 == 0 else "heldout"


def digest(text: str) -> str:
    """Enough of a hash to tell the lines of a file apart, blind to indentation."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:8]


def read(folder: Path = LABELS) -> list[LabelledPackage]:
    """All labels, by name of the package."""
    return [_package(tomllib.loads(path.read_text())) for path in sorted(folder.glob("*.toml"))]


def settled(spot: Spot, lines: Sequence[str]) -> Spot | None:
    """The spot in the text as it is: moved to the nearest line with its hash. None: the line is not there any more."""
    same = [number for number, text in enumerate(lines, 1) if digest(text) == spot.digest]
    if not same:
        return None
    shift = min((number - spot.line for number in same), key=abs)
    until = spot.until + shift if spot.until else 0
    return Spot(spot.line + shift, spot.digest, until, tuple(line + shift for line in spot.others))


def _package(table: dict[str, Any]) -> LabelledPackage:
    files = tuple(_file(one) for one in table["files"])
    return LabelledPackage(table["package"], table["version"], files, table.get("half") == "blind")


def _file(table: dict[str, Any]) -> LabelledFile:
    return LabelledFile(
        path=table["path"],
        field=table["field"],
        expected=tuple(Expected(_spot(one), tuple(one["codes"]), one["why"]) for one in table.get("expected", ())),
        quiet=tuple(Quiet(_spot(one), tuple(one.get("codes", ())), one["why"]) for one in table.get("quiet", ())),
        judged=tuple(Judged(_spot(one), one["code"], one["is"], one["why"]) for one in table.get("judged", ())),
    )


def _spot(table: dict[str, Any]) -> Spot:
    return Spot(table["line"], table["hash"], table.get("until", 0), tuple(table.get("or", ())))
