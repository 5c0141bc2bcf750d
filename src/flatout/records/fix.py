"""What `flatout fix` plans, finds and proves: every remedy with its figures, the profile against the bare script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from flatout.records.message import Message
from flatout.records.proof import BAR, Ceiling, Decision, Envelope, Hours, Identity, MeasuredGain, MetricVerdict
from flatout.records.report import Gain, Ladder, Verdict

# What is to be tried on a script, in which order, and what is left out and why.

# The message of a remedy whose class the user has not allowed.
NOT_ALLOWED = "plan.not_allowed"


def priority(gain: float) -> str:
    """How much a gain is worth: "high", "medium" or "low"."""
    if gain >= 1.2:
        return "high"
    return "medium" if gain >= 1.05 else "low"


@dataclass(frozen=True, slots=True)
class Planned:
    """A remedy worth a trial. `codes` are the findings it answers; `predicted` is the largest gain among theirs."""

    id: str
    value: Any
    safety: str
    title: str
    why: Message
    codes: tuple[str, ...] = ()
    predicted: Gain | None = None

    @property
    def priority(self) -> str:
        return priority(self.predicted.mid if self.predicted is not None else 1.0)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A remedy that was not tried, and what it promised where the findings call for it."""

    id: str
    why: Message
    predicted: Gain | None = None

    @property
    def forbidden_class(self) -> str | None:
        """The class of remedies that the user has not allowed, if that is why."""
        why = self.why
        return str(why.args["safety"]) if why.id == NOT_ALLOWED else None


@dataclass(frozen=True, slots=True)
class Plan:
    remedies: tuple[Planned, ...]
    left_out: tuple[LeftOut, ...] = ()


# What came of it.

SCHEMA = 1

# A predicted gain that is off by no more than this is near.
NEAR = 0.2
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
class Foretold:
    """How near predicted gains came to the measured ones, of remedies that were tried by themselves."""

    remedies: int
    # Those within 20% of the measured gain, and the median of measured over predicted.
    near: int
    ratio: float


def compare_predictions(tried: Sequence[Tried]) -> Foretold | None:
    """None where no remedy has both figures."""
    ratios = [
        attempt.gain.mid / attempt.planned.predicted.mid
        for attempt in tried
        if attempt.gain is not None and attempt.planned.predicted is not None and not attempt.together
    ]
    if not ratios:
        return None
    near = sum(abs(1.0 / ratio - 1.0) <= NEAR for ratio in ratios)
    return Foretold(len(ratios), near, median(ratios))


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
    # Trials that others disturbed, and what became of them; None without any.
    disturbed: Message | None = None
    # None where nothing that was tried had a predicted gain.
    foretold: Foretold | None = None
    # How far a step under the profile is from the device's limit; None where no look recorded that.
    ladder: Ladder | None = None
