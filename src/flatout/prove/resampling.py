"""How surely one trial knows its own rate: its blocks drawn again and again.

Neighbouring blocks are alike (clocks, caches and other users of the machine change slowly), so they are drawn in runs
of neighbours. Drawing too few from too few makes them look more alike than they are; that is made up for.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from flatout.prove.rates import (
    Blocks,
    Floats,
    blocks_of,
    has_beat,
    is_long,
    is_uneven,
    middle,
    ordinary,
    pause_seconds,
    rate,
    step_seconds,
    units_of,
    whole_beats,
)
from flatout.records.proof import By, Unit
from flatout.records.trial import Trial

DRAWS = 1000


def seeded(*arrays: Floats) -> np.random.Generator:
    """The same measurements give the same draws, and so the same verdict."""
    digest = blake2b(digest_size=8)
    for array in arrays:
        digest.update(array.tobytes())
    return np.random.default_rng(int.from_bytes(digest.digest(), "little"))


def log_seconds(trial: Trial, unit: Unit, by: By) -> float:
    return float(np.log(rate(trial, unit, by).seconds))


def errors(trial: Trial, unit: Unit, by: By) -> Floats:
    """Draws of what `log_seconds` may be off by, for all that happened within this one process."""
    part = whole_beats(trial) if by == "total" else slice(None)
    pauses = pause_seconds(trial)[part] if by == "total" else np.zeros(0)
    seconds = step_seconds(trial)[part] - pauses if by == "total" else ordinary(trial)
    units = units_of(trial, unit)[part]
    return _errors(*(tuple(array.tolist()) for array in (seconds, units, pauses)), by, part != slice(None))


@lru_cache(maxsize=256)  # one trial takes part in many comparisons
def _errors(
    step_s: tuple[float, ...], unit_counts: tuple[float, ...], pause_s: tuple[float, ...], by: By, is_whole: bool
) -> Floats:
    seconds, units, pauses = (np.asarray(values, dtype=np.float64) for values in (step_s, unit_counts, pause_s))
    draw = seeded(seconds, units)
    is_summed = by == "total" or is_uneven(seconds)
    drawn = _sums(seconds, units, pauses, is_whole, draw) if is_summed else _middles(seconds, units, draw)
    off: Floats = drawn - np.median(drawn)
    off.setflags(write=False)
    return off


def _middles(seconds: Floats, units: Floats, draw: np.random.Generator) -> Floats:
    blocks = blocks_of(seconds, units)
    picked, widen = _runs(len(blocks.seconds), draw)
    drawn: Floats = np.log(middle(blocks.seconds_per_unit[picked]))
    return drawn * widen


def _sums(seconds: Floats, units: Floats, pauses: Floats, is_whole: bool, draw: np.random.Generator) -> Floats:
    """Ordinary blocks, the extra time of long steps and pauses are drawn apart: those come at their own beat."""
    long = is_long(seconds)
    ordinary = np.where(long, np.median(seconds), seconds)
    blocks = blocks_of(ordinary, units)
    picked, widen = _runs(len(blocks.seconds), draw)
    sums = Blocks(blocks.seconds[picked].sum(axis=1), blocks.units[picked].sum(axis=1))
    extra_s = _extra_seconds(seconds[long] - np.median(seconds), has_beat(long), draw)
    if pauses.any():
        extra_s = extra_s + _extra_seconds(pauses[pauses > 0], is_whole, draw)
    drawn: Floats = np.log((sums.seconds + extra_s) / sums.units)
    return drawn * widen


def _extra_seconds(extra: Floats, is_steady: bool, draw: np.random.Generator) -> Floats:
    """How many fell into the trial is known to half a one where they have a beat, else as chance has it."""
    count = len(extra)
    if not count:
        return np.zeros(DRAWS)
    counts = count + draw.uniform(-0.5, 0.5, DRAWS) if is_steady else draw.poisson(count, DRAWS).astype(np.float64)
    means: Floats = draw.choice(extra, (DRAWS, count)).mean(axis=1)
    return counts * means


def _runs(count: int, draw: np.random.Generator) -> tuple[NDArray[np.intp], float]:
    """Which blocks each draw takes, and what to widen the outcome by."""
    length = max(1, round(count ** (1 / 3)))
    needed = -(-count // length)
    starts = draw.integers(0, count, (DRAWS, needed, 1))
    picked = (starts + np.arange(length)) % count
    widen = (count / max(1, count - length)) ** 0.5
    return picked.reshape(DRAWS, -1)[:, :count], widen
