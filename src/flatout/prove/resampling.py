"""How surely one trial knows its own rate: its blocks drawn again and again.

Neighbouring blocks are alike (clocks, caches and other users of the machine change slowly), so they are drawn in runs
of neighbours. Drawing too few from too few makes them look more alike than they are; that is made up for.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from flatout.prove.rates import Blocks, Floats, blocks_of, fitting, has_beat, is_long, middle, rate, without_rare
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
    return _errors(tuple(trial.step_s), tuple(trial.samples) if unit == "sample" else (), by)


@lru_cache(maxsize=256)  # one trial takes part in many comparisons
def _errors(step_s: tuple[float, ...], samples: tuple[float, ...], by: By) -> Floats:
    seconds = np.asarray(step_s, dtype=np.float64)
    units = np.asarray(samples, dtype=np.float64) if samples else np.ones(len(step_s))
    draw = seeded(seconds, units)
    drawn = (_totals if fitting(seconds, by) == "total" else _middles)(seconds, units, draw)
    off: Floats = drawn - np.median(drawn)
    off.setflags(write=False)
    return off


def _middles(seconds: Floats, units: Floats, draw: np.random.Generator) -> Floats:
    blocks = blocks_of(without_rare(seconds), units)
    picked, widen = _runs(len(blocks.seconds), draw)
    drawn: Floats = np.log(middle(blocks.seconds_per_unit[picked]))
    return drawn * widen


def _totals(seconds: Floats, units: Floats, draw: np.random.Generator) -> Floats:
    """Ordinary blocks and the extra time of long steps are drawn apart: those come at their own beat."""
    long = is_long(seconds)
    extra = seconds[long] - np.median(seconds)
    ordinary = np.where(long, np.median(seconds), seconds)
    blocks = blocks_of(ordinary, units)
    picked, widen = _runs(len(blocks.seconds), draw)
    sums = Blocks(blocks.seconds[picked].sum(axis=1), blocks.units[picked].sum(axis=1))
    drawn: Floats = np.log((sums.seconds + _extra_seconds(extra, has_beat(long), draw)) / sums.units)
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
