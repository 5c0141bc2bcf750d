"""What arms came to that took turns within one process, from its recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.app.each_step import each_step
from flatout.diagnose.ranks import Rank
from flatout.records.report import RemedyState
from flatout.records.trial import Trial
from flatout.remedies.catalogue import known

# A turn that took so many times the usual had something else in it.
_LONG = 2.0
_MOST_LONG = 0.25


def in_turns(trial: Trial, ranks: Sequence[Rank]) -> dict[str, Trial]:
    """By arm: a trial whose steps are the means of its turns. All ranks take turns together: the first one's count."""
    found = next(((figures, rank) for rank in ranks for figures in rank.recording.values("screening")), None)
    if found is None:
        return {}
    figures, rank = found
    times, _, pauses = each_step(rank.steps)
    return {
        name: replace(
            trial,
            arm=name,
            step_s=without_long(trained_s(seconds, figures["after"][name], int(figures["timed"]), times, pauses)),
            samples=(),
            pause_s=(),
            losses=(),
            states=_states(figures["states"][name]),
        )
        for name, seconds in figures["seconds"].items()
    }


def trained_s(seconds: Sequence[float], after: Sequence[int], timed: int, times: Any, pauses: Any) -> list[float]:
    """Seconds a step of each turn, without the steps that an evaluation or a checkpoint came into.

    What follows one may be long as well, when a loader or the device begins anew: it goes with it. A turn of which less
    than half is left has nothing to say.
    """
    found = []
    for step_s, first in zip(seconds, after, strict=True):
        own_s, paused_s = times[first : first + timed], pauses[first : first + timed]
        if paused_s.any():
            long = (paused_s > 0) | (own_s > _LONG * np.median(own_s))
            left = timed - int(long.sum())
            if 2 * left < timed:
                continue
            step_s = (step_s * timed - float(own_s[long].sum())) / left
        found.append(max(0.0, step_s))
    return found


def without_long(seconds: Sequence[float]) -> tuple[float, ...]:
    if not seconds:
        return ()
    usual = float(np.median(seconds))
    short = tuple(one for one in seconds if one <= _LONG * usual)
    return short if len(short) >= (1.0 - _MOST_LONG) * len(seconds) else tuple(seconds)


def _states(told: Mapping[str, Any]) -> tuple[RemedyState, ...]:
    remedies = known()
    return tuple(RemedyState(name, remedies[name].safety, None, state, why) for name, (state, why) in told.items())
