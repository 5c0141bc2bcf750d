"""What arms came to that took turns within one process, from its recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.diagnose.ranks import Rank
from flatout.records.report import RemedyState
from flatout.records.trial import Trial
from flatout.remedies.catalogue import known

# A turn that took so many times the usual had an evaluation or a checkpoint in it.
_LONG = 2.0
_MOST_LONG = 0.25


def in_turns(trial: Trial, ranks: Sequence[Rank]) -> dict[str, Trial]:
    """By arm: a trial whose steps are the means of its turns. All ranks take turns together: the first one's count."""
    found = next((figures for rank in ranks for figures in rank.recording.values("screening")), None)
    if found is None:
        return {}
    return {
        name: replace(
            trial,
            arm=name,
            step_s=without_long(seconds),
            samples=(),
            pause_s=(),
            losses=(),
            states=_states(found["states"][name]),
        )
        for name, seconds in found["seconds"].items()
    }


def without_long(seconds: Sequence[float]) -> tuple[float, ...]:
    if not seconds:
        return ()
    usual = float(np.median(seconds))
    short = tuple(one for one in seconds if one <= _LONG * usual)
    return short if len(short) >= (1.0 - _MOST_LONG) * len(seconds) else tuple(seconds)


def _states(told: Mapping[str, Any]) -> tuple[RemedyState, ...]:
    remedies = known()
    return tuple(RemedyState(name, remedies[name].safety, None, state, why) for name, (state, why) in told.items())
