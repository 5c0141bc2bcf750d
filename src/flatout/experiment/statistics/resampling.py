"""How surely one trial knows its own rate: its blocks drawn again and again.

Neighbouring blocks are alike (clocks, caches and other users of the machine change slowly), so they are drawn in runs
of neighbours. Drawing too few from too few makes them look more alike than they are; that is made up for. Where steps
keep a beat the runs are whole beats: each has what is regular in it, and only what is not makes them differ.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from flatout.experiment.statistics.beats import Beat, Floats, beat_of, has_beat, is_long, whole
from flatout.experiment.statistics.rates import (
    Blocks,
    block_count,
    blocks_of,
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
    arrays = (tuple(array.tolist()) for array in (seconds, units, pauses))
    return _errors(*arrays, by, part != slice(None), trial.beat if by == "blocks" else None)


@lru_cache(maxsize=256)  # one trial takes part in many comparisons
def _errors(
    step_s: tuple[float, ...],
    unit_counts: tuple[float, ...],
    pause_s: tuple[float, ...],
    by: By,
    is_whole: bool,
    known: int | None,
) -> Floats:
    seconds, units, pauses = (np.asarray(values, dtype=np.float64) for values in (step_s, unit_counts, pause_s))
    draw = seeded(seconds, units)
    beat = whole(seconds, known) if known else beat_of(seconds)
    if by == "total" or beat is not None or is_uneven(seconds):
        in_beats = _in_beats(seconds, units, beat, by, draw) if beat is not None else None
        sums, widen = in_beats or _by_chance(seconds, units, draw)
        extra_s = _extra_seconds(pauses[pauses > 0], is_whole, draw)  # apart: they come at their own beat
        drawn = np.log((sums.seconds + extra_s) / sums.units) * widen
    else:
        drawn = _middles(seconds, units, draw)
    off: Floats = drawn - np.median(drawn)
    off.setflags(write=False)
    return off


def _middles(seconds: Floats, units: Floats, draw: np.random.Generator) -> Floats:
    blocks = blocks_of(seconds, units)
    picked, widen = _runs(len(blocks.seconds), draw)
    drawn: Floats = np.log(middle(blocks.seconds_per_unit[picked]))
    return drawn * widen


def _by_chance(seconds: Floats, units: Floats, draw: np.random.Generator) -> tuple[Blocks, float]:
    """Ordinary blocks, and apart from them the extra time of long steps."""
    long = is_long(seconds)
    blocks = blocks_of(np.where(long, np.median(seconds), seconds), units)
    picked, widen = _runs(len(blocks.seconds), draw)
    extra_s = _extra_seconds(seconds[long] - np.median(seconds), has_beat(long), draw)
    return Blocks(blocks.seconds[picked].sum(axis=1) + extra_s, blocks.units[picked].sum(axis=1)), widen


def _in_beats(
    seconds: Floats, units: Floats, beat: Beat, by: By, draw: np.random.Generator
) -> tuple[Blocks, float] | None:
    """Runs of whole beats, each begun at any step: a beat that slips has them differ. None where one is empty.

    They are as long as runs of blocks would be, since neighbours are alike for as long. A total has steps over and
    above whole beats; those are drawn from any place of a beat.
    """
    wholes = (seconds[beat.whole], units[beat.whole])
    if any(_windows(values, beat.steps).min() <= 0 for values in wholes):
        return None
    places = len(wholes[0])
    count = len(seconds) if by == "total" else places
    beats = max(1, round(places / block_count(places) / beat.steps))
    length, widen = _run(places // (beats * beat.steps))
    steps = length * beats * beat.steps
    starts = draw.integers(0, places, (DRAWS, count // steps + 1))
    sums = [
        _windows(values, steps)[starts[:, 1:]].sum(axis=1) + _windows(values, count % steps)[starts[:, 0]]
        for values in wholes
    ]
    return Blocks(*sums), widen


def _windows(values: Floats, steps: int) -> Floats:
    """The sums of so many neighbours, from each place on; the last has the first for a neighbour."""
    sums = np.concatenate(([0.0], np.cumsum(np.concatenate((values, values[:steps])))))
    return np.asarray(sums[steps : steps + len(values)] - sums[: len(values)])


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
    length, widen = _run(count)
    needed = -(-count // length)
    starts = draw.integers(0, count, (DRAWS, needed, 1))
    picked = (starts + np.arange(length)) % count
    return picked.reshape(DRAWS, -1)[:, :count], widen


def _run(count: int) -> tuple[int, float]:
    """How many neighbours of so many blocks to draw at once, and what to widen the outcome by."""
    length = max(1, round(count ** (1 / 3)))
    return length, (count / max(1, count - length)) ** 0.5
