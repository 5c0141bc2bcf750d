"""Did a remedy leave every number as it was? Losses bit by bit, and the weights where two trials stopped.

Trials stop where they stop, so losses are compared over the steps that both have. A script that does not repeat itself
when nothing is changed cannot be held to this: then it is said from which step, and how closely the losses agree as
long as its own do (see `nearness`); after that only the envelope can speak.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from flatout.records.message import Message, message
from flatout.records.proof import Identity
from flatout.records.trial import Trial


@dataclass(frozen=True, slots=True)
class _Meeting:
    """How far two trials agree. `first` is the first step (from 1) whose losses differ."""

    compared: int
    first: int | None
    values: tuple[str, str] | None
    weights_equal: bool | None

    @property
    def differs(self) -> bool:
        return self.first is not None or self.weights_equal is False


def judge_identity(bare: Sequence[Trial], changed: Trial) -> Identity:
    """`changed` against the script as it is, of which two trials show whether it repeats itself at all."""
    bare = [trial for trial in bare if trial.losses]
    if not bare or not changed.losses:
        return Identity("not comparable", 0, message("identity.no_loss_with_it" if bare else "identity.no_loss"))
    meetings = [_met(trial, changed) for trial in bare]
    if not any(met.compared or met.differs for met in meetings):
        return Identity("not comparable", 0, message("identity.unread"))
    agreed = max((met for met in meetings if not met.differs), key=lambda met: met.compared, default=None)
    departed = max((met for met in meetings if met.differs), key=lambda met: met.compared, default=None)
    itself = [met for met in (_met(one, other) for one, other in combinations(bare, 2)) if met.differs]
    # A script that has several ways to go may well go one of them with the remedy.
    if agreed is not None and (departed is None or (itself and agreed.compared > departed.compared)):
        return Identity("identical", agreed.compared, _agreed(agreed), weights_equal=agreed.weights_equal)
    assert departed is not None
    if itself:
        return _unrepeatable(bare, changed, departed, min(itself, key=lambda met: met.compared))
    sentence = _departed(departed)
    if len(bare) < 2:
        sentence = message("identity.not_repeated", sentence=sentence)
    return Identity("differs", departed.compared, sentence, departed.first, departed.values, departed.weights_equal)


def _met(one: Trial, other: Trial) -> _Meeting:
    compared = 0
    for step, (left, right) in enumerate(zip(one.losses, other.losses, strict=False), 1):
        if left is None or right is None:
            continue
        if _bits(left) != _bits(right):
            return _Meeting(compared, step, (float(left).hex(), float(right).hex()), _weights(one, other))
        compared += 1
    return _Meeting(compared, None, None, _weights(one, other))


def _bits(loss: float) -> bytes:
    """Not `==`: a NaN equals the same NaN here, and 0.0 is not -0.0."""
    return struct.pack("<d", loss)


def _weights(one: Trial, other: Trial) -> bool | None:
    if one.weights is None or other.weights is None or _digested_at(one) != _digested_at(other):
        return None
    return one.weights == other.weights


def _digested_at(trial: Trial) -> tuple[str, int]:
    """The step whose weights these are, or else the pass."""
    return ("step", trial.steps) if trial.steps is not None else ("pass", len(trial.losses))


def _agreed(meeting: _Meeting) -> Message:
    if meeting.weights_equal:
        return message("identity.same_weights", steps=meeting.compared)
    return message("identity.weights_not_compared", steps=meeting.compared)


def _departed(meeting: _Meeting) -> Message:
    if meeting.first is None or meeting.values is None:
        return message("identity.weights_differ", steps=meeting.compared)
    before, after = (float.fromhex(value) for value in meeting.values)
    return message("identity.loss_differs", step=meeting.first, before=before, after=after)


def _unrepeatable(bare: Sequence[Trial], changed: Trial, meeting: _Meeting, itself: _Meeting) -> Identity:
    near = measure_nearness(bare, changed)
    is_loss = itself.first is not None
    where = message("identity.from_step", step=itself.first) if is_loss else message("identity.in_weights")
    if near.values is not None:
        before, after = near.values
        step = near.steps + 1
        sentence = message("identity.far", step=step, before=before, after=after, where=where)
        return Identity("differs", near.steps, sentence, step, (before.hex(), after.hex()), False)
    if near.verdict == "alike":
        how = message("identity.within", apart=near.apart) if near.apart else message("identity.to_the_bit")
        sentence = message("identity.alike", steps=near.steps, how=how, where=where)
        return Identity("alike", near.steps, sentence, meeting.first, meeting.values, meeting.weights_equal)
    sentence = message("identity.not_repeatable", where=where)
    if meeting.first is not None:
        sentence = message("identity.not_repeatable_nor_with_it", where=where, step=meeting.first)
    return Identity("not comparable", meeting.compared, sentence, meeting.first, meeting.values, meeting.weights_equal)


# How close losses stay to those of a script that is not deterministic to the bit.
#
# Atomic additions and the like come out in another order each time. The difference begins as a rounding error and grows
# from step to step; other batches, or the same in another order, are far away at once. So the first steps tell: as long
# as the script's own runs stay close together, a remedy that changes nothing stays as close to them.

# All in shares of the loss. Runs of the script that are farther apart tell nothing any more.
_CLOSE = 1e-3
# What rounding makes of a loss, and how much farther than from each other one more run may be from the nearest.
_ROUNDING, _TIMES = 2e-5, 4.0
# Far away right after a step that was within rounding: no rounding error grows by so much in one step.
_FAR, _SAME = 5e-3, 1e-4
_FEWEST = 3


@dataclass(frozen=True, slots=True)
class Nearness:
    """For how many steps it stayed as close as the script to itself, and how close that was."""

    verdict: Literal["alike", "far", "unknown"]
    steps: int
    apart: float
    # The losses at the step where it is far away: the nearest of the script, and this one.
    values: tuple[float, float] | None = None


def measure_nearness(bare: Sequence[Trial], changed: Trial) -> Nearness:
    """`bare` are runs of the script as it is, two at least."""
    apart, before, steps = 0.0, 0.0, 0
    for losses in zip(*(trial.losses for trial in (*bare, changed)), strict=False):
        known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
        if len(known) < len(losses) or not any(known):
            break
        *own, ours = known
        size = max(map(abs, own))
        now = max(apart, (max(own) - min(own)) / size) if size else math.inf
        if now > _CLOSE:
            break
        nearest = min(own, key=lambda loss: abs(loss - ours))
        away = abs(ours - nearest) / size
        if away > _FAR and before <= _ROUNDING and now <= _SAME:
            return Nearness("far", steps, apart, (nearest, ours))
        if away > max(_ROUNDING, _TIMES * now):
            break
        apart, before, steps = now, away, steps + 1
    return Nearness("alike" if steps >= _FEWEST else "unknown", steps, apart)
