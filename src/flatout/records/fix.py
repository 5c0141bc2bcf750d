"""What `flatout fix` found and proved: every remedy with its figures, and the whole profile against the bare script."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from flatout.records.message import Message
from flatout.records.plan import LeftOut, Planned, priority
from flatout.records.proof import BAR, Ceiling, Decision, Envelope, Hours, Identity, MeasuredGain, MetricVerdict
from flatout.records.report import Verdict

SCHEMA = 1

# What became of a remedy: in the profile, or why not.
State = Literal["kept", "outdone", "neutral", "harmful", "refused", "failed", "not measured"]


@dataclass(frozen=True, slots=True)
class Tried:
    """One remedy: what was expected of it, and what its trials say on top of those that were kept before it."""

    planned: Planned
    state: State
    why: Message
    decision: Decision | None = None
    # For a lossless one: were the numbers the very same?
    identity: Identity | None = None
    # Others that were tried in the same trials: the figure is of all of them.
    together: tuple[str, ...] = ()

    @property
    def gain(self) -> MeasuredGain | None:
        return self.decision.gain if self.decision is not None else None

    @property
    def outcome(self) -> str:
        """The state as it is shown: neutral only where trials show that there is no gain to speak of."""
        gain = self.gain
        is_undecided = self.state == "neutral" and gain is not None and gain.low <= BAR < gain.high
        return "undecided" if is_undecided else self.state

    @property
    def priority(self) -> str:
        """By what it gained, where that was measured."""
        return priority(self.gain.mid) if self.gain is not None else self.planned.priority


@dataclass(frozen=True, slots=True)
class Quality:
    """What can be said of the training's results under the whole profile."""

    # Of the lossless part alone, where there is one.
    identity: Identity | None = None
    # Of everything, where something numeric or more is in it.
    envelope: Envelope | None = None
    metric: MetricVerdict | None = None


@dataclass(frozen=True, slots=True)
class Fix:
    """The record of one `flatout fix`. `profile` holds what was kept, by the remedies' ids; empty if nothing was."""

    command: tuple[str, ...]
    device: str
    verdict: Verdict
    tried: tuple[Tried, ...]
    left_out: tuple[LeftOut, ...]
    profile: dict[str, Any]
    # Samples (or steps) a second of the bare script and under the profile.
    unit: str
    before_per_s: float | None
    after_per_s: float | None
    gain: MeasuredGain | None
    hours_before: Hours | None
    hours_after: Hours | None
    ceiling: Ceiling | None
    quality: Quality
    # Why the search ended: at the ceiling, out of time, nothing left to try.
    ended: Message
    trials: int
    took_s: float
    # Files that the script writes: in the trials they went to a scratch folder.
    written: tuple[str, ...] = ()
    # Programs it starts whose files went where they always go, in the trials too.
    uncontained: tuple[str, ...] = ()
    # Files of the user's that the findings are in, or have to do with.
    sources: tuple[str, ...] = ()
    # Workers of the training's loader under the profile, as the trials had them; None where it is not about workers.
    workers: int | None = None
    notices: tuple[Message, ...] = ()
    # Trials that did not end well, by arm.
    failures: dict[str, Message] = field(default_factory=dict)
