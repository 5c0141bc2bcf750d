"""What `flatout compare` says: one arm of stored runs against others, in speed, phases, settings and findings.

An arm is one run or several of the same command. `None` always means "not measured".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flatout.records.message import Message
from flatout.records.proof import MeasuredGain
from flatout.records.report import Finding

SCHEMA = 1

Judgement = Literal["faster", "slower", "no sure difference", "not measured"]


@dataclass(frozen=True, slots=True)
class Arm:
    """One or more runs under the name of the first. Figures are means over its runs, of their steady steps."""

    name: str
    runs: tuple[str, ...]
    script: str
    device: str
    ranks: int
    # Of all runs together, without warm-up.
    steps: int
    steps_per_s: float | None
    samples_per_s: float | None
    step_ms: float | None
    samples_per_step: float | None
    # What bounds its first run.
    bound: str
    sentence: Message


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """A phase before and after: milliseconds and share (0..1) of a step, and microseconds of a sample."""

    phase: str
    ms: tuple[float, float]
    share: tuple[float, float]
    us_per_sample: tuple[float, float] | None

    def ms_of(self, by_sample: bool) -> tuple[float, float]:
        """Milliseconds of a sample, where they are asked for and known, else of a step."""
        if by_sample and self.us_per_sample is not None:
            return self.us_per_sample[0] / 1e3, self.us_per_sample[1] / 1e3
        return self.ms


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting with two values; None where a run does not have it. `group` is command, loader, torch …"""

    group: str
    name: str
    before: object
    after: object


@dataclass(frozen=True, slots=True)
class Comparison:
    """One arm against the first."""

    before: Arm
    after: Arm
    judgement: Judgement
    sentence: Message
    # Rate after over rate before: of all the time there was, and of the training without evaluations, checkpoints and
    # other rare long steps.
    gain: MeasuredGain | None
    ordinary_gain: MeasuredGain | None
    phases: tuple[PhaseChange, ...]
    settings: tuple[SettingChange, ...]
    gone: tuple[Finding, ...]
    new: tuple[Finding, ...]
    # In both, as the later run has them.
    stayed: tuple[Finding, ...]
    # One line each on how far the two can be compared at all.
    notices: tuple[Message, ...] = ()

    @property
    def same_batch(self) -> bool:
        """Whether a step of one is as many samples as a step of the other; if not, only samples compare."""
        before, after = self.before.samples_per_step, self.after.samples_per_step
        return before is None or after is None or abs(after - before) <= 0.01 * before


@dataclass(frozen=True, slots=True)
class Gate:
    """`--fail-below`: the least ratio of rates that is accepted, and the arms that are surely below it."""

    least: float
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """All arms against the first of them."""

    comparisons: tuple[Comparison, ...]
    gate: Gate | None = None
    # Runs that others disturbed: who, and how much.
    disturbed: tuple[Message, ...] = ()
    schema: int = SCHEMA

    @property
    def baseline(self) -> Arm:
        return self.comparisons[0].before
