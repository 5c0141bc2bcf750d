"""What `flatout check` finds in source: the record behind its terminal page, JSON, SARIF and annotations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from flatout.records.message import NOTHING, Message

# A hint is about nothing that is wrong; it does not make a check fail.
Severity = Literal["high", "medium", "low", "hint", "error"]

# What is no problem of the catalogue, and still has to be said.
SYNTAX = "invalid-syntax"
UNUSED = "unused-ignore"


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the source: lines and columns count from 1, `end_column` is the first one behind it.

    In a notebook `cell` counts the code cells' places among all cells from 1, and lines count within the cell.
    """

    file: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0
    cell: int | None = None


@dataclass(frozen=True, slots=True)
class Related:
    """Another place one has to see to understand a finding: where a value is written, how a line is reached."""

    place: Place
    words: Message


@dataclass(frozen=True, slots=True)
class Edit:
    """Puts `text` in the place of what stands there; a place without an end is where it is put in."""

    place: Place
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """How flatout can make the change itself. A safe one keeps what the script computes, prints and writes."""

    words: Message
    edits: tuple[Edit, ...]
    is_safe: bool
    # Statements the edits need at the top of the edited file, where they are not there yet: `import torch`.
    imports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run shows of a finding. A run that cannot tell shows no cost, and that is not the same as none."""

    state: Literal["costs", "free", "not_reached", "not_measured"]
    # What it costs, not merely what it takes: time that passes while the device computes anyway is free.
    ms_per_step: float | None = None
    share: float | None = None
    # Why it is free or not measured, or what the figure is of.
    words: Message = NOTHING


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """The run that findings were joined with."""

    id: str
    step_ms: float
    device: str


@dataclass(frozen=True, slots=True)
class SourceFinding:
    """`cause` says what is wrong here, `change` what to write instead."""

    code: str
    family: str
    title: str
    severity: Severity
    place: Place
    cause: Message
    change: Message | None
    related: tuple[Related, ...] = ()
    fix: Fix | None = None
    # The setting of a DataLoader that the change is about.
    loader_setting: str | None = None
    measured: Measured | None = None


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All that one `flatout check` has to say: in the order of the text, or of what it costs where a run tells."""

    findings: tuple[SourceFinding, ...]
    files: int
    # The text of the lines that findings point at, by file, cell and line.
    lines: dict[tuple[str, int | None, int], str] = field(default_factory=dict)
    # One line each on what could not be read or judged.
    trouble: tuple[Message, ...] = ()
    seconds: float = 0.0
    # What `--fix` has done before: the findings are those that are left.
    fixed: int = 0
    fixed_files: int = 0
    run: MeasuredRun | None = None
    # One line each on how far the run and the source belong together.
    notices: tuple[Message, ...] = ()
