"""From a trial to a point: how fast it was and how sure that is, what it needed, and whether it was what was asked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from flatout.records.report import RemedyState
from flatout.records.trial import Trial
from flatout.records.tune import Ask, Point

_BLOCKS = 8
# The host's memory is read every five seconds: a shorter trial may end on what its processes began with.
_LEAST_HOST_S = 10.0
# How many times as long as the next longest block makes a pause.
_PAUSE = 3.0


def point(ask: Ask, trial: Trial) -> Point:
    samples, error = rate(trial.step_s, trial.samples)
    steps, error_of_steps = rate(trial.step_s, [1.0] * len(trial.step_s))
    device = trial.device_peak_bytes
    host = trial.host_peak_bytes if trial.wall_s >= _LEAST_HOST_S else None
    return Point(
        setting=dict(ask.setting),
        steps=ask.steps,
        repeat=ask.repeat,
        why=_obstacle(trial),
        samples_per_s=samples,
        steps_per_s=steps,
        error=error if samples is not None else error_of_steps,
        memory_bytes=device if device is not None else host,
        is_device_memory=device is not None,
        metric=trial.metric,
        wall_s=trial.wall_s,
    )


def rate(step_s: Sequence[float], amounts: Sequence[float]) -> tuple[float | None, float | None]:
    """Amount a second over all steps, and its relative error by leaving out one block of steps after another.

    Not a median: workers hand out batches in bursts, and most steps would tell of no wait at all. One pause that is
    far longer than any other block is left out; it is an evaluation, or the machine's. None where nothing was counted.
    """
    if len(amounts) != len(step_s) or not sum(step_s) or not sum(amounts):
        return None, None
    blocks = [(sum(amounts[block]), sum(step_s[block])) for block in _blocks(len(step_s))]
    blocks = _without_a_pause(blocks)
    whole = _ratio(blocks)
    if len(blocks) < 3:
        return whole, None
    without = [_ratio(blocks[:at] + blocks[at + 1 :]) for at in range(len(blocks))]
    middle = sum(without) / len(without)
    spread = sum((one - middle) ** 2 for one in without) * (len(without) - 1) / len(without)
    return whole, math.sqrt(spread) / whole


def _without_a_pause(blocks: list[tuple[float, float]]) -> list[tuple[float, float]]:
    by_time = sorted(blocks, key=lambda block: block[1])
    if len(blocks) < _BLOCKS or by_time[-1][1] <= _PAUSE * by_time[-2][1]:
        return blocks
    return [block for block in blocks if block is not by_time[-1]]


def _ratio(blocks: Sequence[tuple[float, float]]) -> float:
    return sum(amount for amount, _ in blocks) / sum(seconds for _, seconds in blocks)


def _blocks(steps: int) -> list[slice]:
    count = max(1, min(_BLOCKS, steps // 2))
    edges = [steps * n // count for n in range(count + 1)]
    return [slice(begin, end) for begin, end in itertools.pairwise(edges) if end > begin]


def _obstacle(trial: Trial) -> str:
    """Why the trial is no measurement of its setting; empty if it is."""
    if not trial.ended_well:
        return f"{trial.ending}: {trial.why}" if trial.why else str(trial.ending)
    return next((words for state in trial.states if (words := _not_in_force(state))), "")


def _not_in_force(state: RemedyState) -> str:
    if state.state == "reverted":
        return f"{state.id} was undone after {state.step} steps, because {state.why}"
    if state.state != "applied":
        return f"{state.id} was not applied, because {state.why}"
    told = [str(one) for one in state.live.values()]
    alone = [one.partition(": ")[2] for one in told if one.startswith("left alone")]
    # A second loader, as an evaluation's, may well be left alone.
    changed = [one for one in told if "→" in one]
    return f"{state.id} left the loader alone: {alone[0]}" if alone and not changed else ""
