"""Work of the script that takes longer from step to step: it goes over everything since the run, or the epoch, began.

A line is fitted through the time that each step spends outside of the passes. That time has to rise with the number of
the step far more than the passes do, which a busy machine would slow as well, and in lines that are not the model's: a
model may be meant to grow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flatout.diagnose.ledger import OWN_PHASES
from flatout.diagnose.ranks import Floats, Rank, epoch_starts
from flatout.diagnose.sites import lines_by_slice
from flatout.records.evidence import GrowingWork
from flatout.records.ledger import SCRIPT, Ledger, LedgerEntry
from flatout.records.report import PHASES, Location

# Steps are pooled by their number, and the median of each pool is taken: a pause or a burst weighs as one step.
_POOLS, _LEAST_POOLS, _IN_A_POOL = 24, 6, 4
# Of what the medians differ by, the line has to explain this part, and the end has to take so many times the begin.
_EXPLAINED, _RISES = 0.7, 1.5
# Of the rise, in proportion, what the passes may rise by.
_PASSES = 0.5
# Slices of time in which lines were looked at; fewer do not tell which of them rises.
_LEAST_SLICES = 4
# Medians of so many records, before and after: where the later falls below this part of the earlier, work begins again.
_AROUND, _FALLS = 5, 0.6
_OWN = [PHASES.index(name) for name in OWN_PHASES]
_PASS = [PHASES.index(name) for name in ("backward", "optimizer")]


@dataclass(frozen=True, slots=True)
class _Fit:
    """A line through the time of a step: at the first one, what a later one adds, and how well that explains it."""

    first: float
    slope: float
    explained: float
    last_x: float

    @property
    def last(self) -> float:
        return self.first + self.slope * self.last_x

    @property
    def rise(self) -> float:
        """In proportion to the time half way."""
        return self.slope * self.last_x / max(1e-12, 0.5 * (self.first + self.last))


def find_growing_work(ranks: Sequence[Rank], ledger: Ledger) -> GrowingWork | None:
    """Of the first rank."""
    rank = ranks[0] if ranks else None
    if rank is None or len(rank.steady) < _LEAST_POOLS * _IN_A_POOL:
        return None
    fits = [(since, numbers, fit) for since, numbers in _numberings(rank) if (fit := _fit_own(rank, numbers))]
    if not fits:
        return None
    since, numbers, fit = max(fits, key=lambda each: each[2].explained)
    entry = _find_line(rank, numbers, ledger)
    if entry is None:
        return None
    mean_ms = 1e3 * _mean(_seconds(rank, _OWN), rank.steady.count)
    grown = max(0.0, 1.0 - max(0.0, 1e3 * fit.first) / mean_ms)
    own_ms = {name: 1e3 * _mean(_seconds(rank, [PHASES.index(name)]), rank.steady.count) for name in OWN_PHASES}
    return GrowingWork(
        location=entry.location,
        function=entry.function,
        since=since,
        steps=fit.last_x,
        first_ms=1e3 * max(0.0, fit.first),
        last_ms=1e3 * fit.last,
        grown_ms={name: grown * ms for name, ms in own_ms.items() if ms > 0},
    )


def _numberings(rank: Rank) -> list[tuple[Literal["run", "epoch"], Floats]]:
    """What each steady record may count from."""
    index = rank.steps.index.astype(np.float64)
    counts: list[tuple[Literal["run", "epoch"], Floats]] = [("run", index[rank.is_steady])]
    own_s = rank.steps.phase_s[:, _OWN].sum(axis=1, dtype=np.float64) / rank.steps.count
    # The record in which an iterator is made begins with what the script does after the last step of the epoch before.
    # A loop without a loader shows where it begins again by the very time that falls there.
    for starts in (epoch_starts(rank.recording, rank.steps), _falls(own_s)):
        known = np.unique(starts[(starts >= 0) & (starts < len(index))])
        if len(known):
            epoch = np.searchsorted(known, np.arange(len(index)), side="left") - 1
            begun = np.where(epoch >= 0, index[known[np.maximum(epoch, 0)]], index[0])
            counts.append(("epoch", (index - begun)[rank.is_steady]))
    return counts


def _falls(seconds: Floats) -> NDArray[np.int64]:
    """The last records before the time falls to a part of what it was."""
    if len(seconds) < 4 * _AROUND:
        return np.empty(0, np.int64)
    middle = np.median(np.lib.stride_tricks.sliding_window_view(seconds, _AROUND), axis=1)
    before, after = middle[:-_AROUND], middle[_AROUND:]
    # Between record i + _AROUND - 1 and the next.
    deep = np.flatnonzero(after < _FALLS * before)
    if not len(deep):
        return np.empty(0, np.int64)
    together = np.split(deep, np.flatnonzero(np.diff(deep) > 1) + 1)
    deepest = [int(group[np.argmin(after[group] / before[group])]) for group in together]
    return np.array([place + _AROUND - 1 for place in deepest], np.int64)


def _seconds(rank: Rank, phases: Sequence[int]) -> Floats:
    """Of one step in each steady record."""
    each: Floats = rank.steady.phase_s[:, phases].sum(axis=1, dtype=np.float64) / rank.steady.count
    return each


def _mean(seconds: Floats, count: Floats) -> float:
    return float(np.average(seconds, weights=count))


def _fit_own(rank: Rank, numbers: Floats) -> _Fit | None:
    own = _fit(numbers, _seconds(rank, _OWN))
    if own is None or own.slope <= 0 or own.explained < _EXPLAINED or own.last < _RISES * max(own.first, 1e-12):
        return None
    passes = _fit(numbers, _seconds(rank, _PASS))
    return own if passes is None or passes.rise < _PASSES * own.rise else None


def _fit(numbers: Floats, seconds: Floats) -> _Fit | None:
    order = np.argsort(numbers, kind="stable")
    pools = min(_POOLS, len(order) // _IN_A_POOL)
    if pools < _LEAST_POOLS:
        return None
    chosen = np.array_split(order, pools)
    x = np.array([numbers[pool].mean() for pool in chosen])
    y = np.array([np.median(seconds[pool]) for pool in chosen])
    apart = x - x.mean()
    if not (apart @ apart) or not np.ptp(y):
        return None
    slope = float(apart @ (y - y.mean()) / (apart @ apart))
    first = float(y.mean() - slope * x.mean())
    left = y - first - slope * x
    explained = 1.0 - float(left @ left) / float((y - y.mean()) @ (y - y.mean()))
    return _Fit(first, slope, explained, float(numbers.max()))


def _find_line(rank: Rank, numbers: Floats, ledger: Ledger) -> LedgerEntry | None:
    """The script's line whose time rises most; None where it is mostly the model that takes longer."""
    rises = _rises(rank, numbers)
    theirs: dict[Location, float] = defaultdict(float)
    known: dict[Location, LedgerEntry] = {}
    for entry in ledger.entries:
        if entry.phase in OWN_PHASES:
            theirs[entry.location] += entry.ms if entry.part in SCRIPT else -entry.ms
            known.setdefault(entry.location, entry)
    own = [place for place, more in theirs.items() if more > 0]
    if rises is None:
        # Too short to see which: the one that takes most, if hardly anything else is done.
        share = sum(entry.share for entry in ledger.entries if entry.phase in OWN_PHASES)
        if not own or ledger.share_of(*SCRIPT) < _EXPLAINED * share:
            return None
        return known[max(own, key=lambda place: theirs[place])]
    risen = sum(max(0.0, rise) for rise in rises.values())
    of_script = {place: rises.get(place, 0.0) for place in own}
    if not own or sum(max(0.0, rise) for rise in of_script.values()) < _EXPLAINED * risen:
        return None
    return known[max(own, key=lambda place: of_script[place])]


def _rises(rank: Rank, numbers: Floats) -> Mapping[Location, float] | None:
    """Seconds that a step spends longer at each line for each step before it; None where it was not looked at often."""
    slices = lines_by_slice(rank, OWN_PHASES)
    start_ns = rank.steady.start_ns.astype(np.float64)
    begins = np.array(sorted(slices), np.float64)
    if len(begins) < _LEAST_SLICES:
        return None
    place_of = np.searchsorted(begins, start_ns, side="right") - 1
    steps = np.array([rank.steady.count[place_of == place].sum() for place in range(len(begins))])
    held = np.flatnonzero(steps > 0)
    if len(held) < _LEAST_SLICES:
        return None
    x = np.array(
        [np.average(numbers[place_of == place], weights=rank.steady.count[place_of == place]) for place in held]
    )
    weights = steps[held]
    apart = x - np.average(x, weights=weights)
    spread = float((weights * apart) @ apart)
    if not spread:
        return None
    per_step: dict[Location, Floats] = defaultdict(lambda: np.zeros(len(held)))
    for at, place in enumerate(held.tolist()):
        for line, seconds in slices[begins[place]].items():
            per_step[Location(line[0], line[1])][at] += seconds / weights[at]
    return {location: float((weights * apart) @ seconds) / spread for location, seconds in per_step.items()}
