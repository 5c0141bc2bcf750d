"""What trials prove, in figures: gains with their intervals, verdicts on remedies, identity, envelopes, ceilings.

A gain is a ratio of rates: 1.05 is five percent more samples a second. `None` means "not measured".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flatout.records.message import Message

Unit = Literal["sample", "step"]
# By the middle of blocks of steps, or by all the time there was, with its rare long steps.
By = Literal["blocks", "total"]


@dataclass(frozen=True, slots=True)
class Rate:
    """What a sample took in one trial, or a step where its samples are not known."""

    seconds: float
    unit: Unit
    by: By
    blocks: int

    @property
    def per_s(self) -> float:
        return 1.0 / self.seconds


@dataclass(frozen=True, slots=True)
class Spread:
    """What the same arm differs by from one process to the next, on this machine.

    Of the logarithm of a rate, so 0.01 is one percent. `expected` is what was assumed of any machine beforehand;
    `factor` is how many times that the variances came out, and `weight` how many trials' worth of knowledge is in it.
    """

    expected: float
    factor: float
    weight: float
    # A standard deviation: what was seen, with what was assumed beforehand.
    typical: float
    # Trials of arms that were run more than once.
    trials: int


@dataclass(frozen=True, slots=True)
class MeasuredGain:
    """Rate of one arm over the rate of another, with the interval that holds the truth with this confidence."""

    low: float
    mid: float
    high: float
    # Of this interval; where several arms were judged at once each has more, so that all hold together.
    confidence: float
    unit: Unit
    by: By
    # Of the arm before and the arm after.
    trials: tuple[int, int]


# A remedy has to gain more than this to stay.
BAR = 1.01
Judgement = Literal["kept", "neutral", "harmful", "not measured"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to become of one arm, and why."""

    arm: str
    judgement: Judgement
    gain: MeasuredGain | None
    why: Message
    # Trials of each of the two arms that would probably settle it; 0 where it is settled, None where too many.
    more_trials: int | None = 0


@dataclass(frozen=True, slots=True)
class Identity:
    """Whether two trials computed the very same numbers. Steps are backward passes, from 1."""

    # "alike": of a script that does not repeat itself to the bit, as close to it as it is to itself.
    verdict: Literal["identical", "alike", "differs", "not comparable"]
    # How many were compared, up to the first that differs.
    steps: int
    sentence: Message
    first_step: int | None = None
    # The two losses there, as `float.hex` writes them.
    values: tuple[str, str] | None = None
    # None where the two were not stopped at the same step, or have no digest.
    weights_equal: bool | None = None


@dataclass(frozen=True, slots=True)
class Envelope:
    """Whether the loss stayed within what the script itself varies by. Shares are of the loss: 0.05 is 5%."""

    verdict: Literal["inside", "outside", "not verified"]
    sentence: Message
    steps: int = 0
    # A drift of less than this could not have been seen.
    least_seen: float | None = None
    # Of the window that is farthest out for its limit: its share above (or below, negative), and its steps from 1.
    farthest: float | None = None
    # The first window outside.
    window: tuple[int, int] | None = None
    yardsticks: int = 0
    # These had their weights moved once by such a share; 0.0 where they are the script run again.
    nudged_by: float = 0.0


@dataclass(frozen=True, slots=True)
class MetricVerdict:
    """Whether the user's own metric stayed within what the script itself varies by, in the metric's own unit."""

    verdict: Literal["inside", "worse", "not verified"]
    sentence: Message
    before: float | None = None
    after: float | None = None
    # A loss of less than this could not have been seen.
    least_seen: float | None = None


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What was achieved against what the device alone and the loader alone can do, in units a second."""

    unit: Unit
    achieved_per_s: float
    compute_per_s: float | None
    feed_per_s: float | None
    binds: Literal["compute", "feed"] | None
    # Achieved over the lower ceiling, with its interval; None without a ceiling.
    reached: MeasuredGain | None
    # Less than 5% is left, so there is nothing more to look for.
    enough: bool
    sentence: Message

    @property
    def left(self) -> float | None:
        """Share of the ceiling that is not reached."""
        return None if self.reached is None else max(0.0, 1.0 - self.reached.mid)


@dataclass(frozen=True, slots=True)
class Hours:
    """Hours that 100,000 steps take, or as many samples as those of the script as it is."""

    low: float
    mid: float
    high: float
    confidence: float
