"""Finds how many workers and how many batches ahead are enough, while the script runs.

The guess comes from what was measured: seconds a sample takes, how much of that is computing, and how soon the script
wants its next batch. From there it climbs, judged by the pace of the whole loop: a worker that costs the main thread
more than it brings makes that pace slower, and goes again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .machine import cpus_of_rank, free_bytes
from .memory import MOST_PARTS
from .messages import Tally

MOST_WORKERS = 32
_FIRST_STEPS = 4
# Steps needed to judge a pace; fewer are enough where they take long.
_LEAST_STEPS = 16
_LONG_STEPS, _LONG_S = 6, 4.0
_ENOUGH = 0.03  # waiting takes no more of the loop's time: nothing is left to gain
_KEEPS_UP = 0.9  # batches made per batch taken; with fewer, those that are ready run out
_MOSTLY = 0.5
_BETTER = 1.05
_FACTOR = 1.5
_LARGEST_FACTOR = 4.0
_MOST_TRIALS = 5
_SPARE = 1.15
_MEMORY_SHARE = 1 / 8
_LEAST_AHEAD = 3
_MOST_AHEAD = 512


@dataclass(frozen=True, slots=True)
class Limits:
    """None: as much as this process may use. More than `workers` would be of no use, whatever the machine has."""

    cpus: float | None = None
    memory_bytes: int | None = None
    workers: int | None = None


class Tuner:
    """Is told every step, and changes `workers` and `ahead` until the pace improves no more."""

    def __init__(self, workers: int, ahead: int, limits: Limits | None = None, is_found: bool = False) -> None:
        """`is_found`: so many were enough for such a run before: they need no guess, only to be seen to be so."""
        limits = limits or Limits()
        self.workers = max(1, workers)
        self.ahead = max(_LEAST_AHEAD, ahead)
        self.steps = 0
        self.settled_at: int | None = None
        self._cpus = limits.cpus if limits.cpus is not None else cpus_of_rank()
        self._memory_bytes = limits.memory_bytes
        self._most_of_use = max(1, min(MOST_WORKERS, limits.workers if limits.workers is not None else MOST_WORKERS))
        self._last_s: float | None = None
        self._best: tuple[float, int] | None = None  # pace, workers
        self._tried: set[int] = set()
        self._direction = _FACTOR
        self._trials = 0
        self._made = 0
        self._made_last = 0
        self._busy_s: list[float] = []
        self._begin(0)
        if is_found:
            self._tried.add(self.workers)
            self._begin(self.workers + 2)

    def settle_for(self, workers: int) -> None:
        """Stay at this number: there is no memory for more."""
        self.workers = workers
        self.settled_at = self.steps

    def begin_epoch(self) -> None:
        """The time between two epochs, and the wait for a first batch, say nothing about the pace."""
        self._last_s = None

    def _begin(self, skip: int) -> None:
        self._skip = skip  # batches to be made before it counts
        self._steps = 0
        self._wall_s = self._wait_s = 0.0
        self._made_then: int | None = None

    def step(self, asked_s: float, arrived_s: float, made: int, costs: Costs, batch: int) -> bool:
        """A batch was asked for and has arrived; `made` is the number made so far, taken or not.

        True: `workers` or `ahead` has changed.
        """
        self.steps += 1
        last_s, self._last_s = self._last_s, arrived_s
        made_since, self._made_last = made - self._made_last, made
        if self.settled_at is not None:
            return False
        if last_s is None:
            if self._made_then is not None:
                self._made_then += made_since
            return False
        if self._made_then is None:
            self._made_then = made
        if made - self._made_then < self._skip:
            return False
        if self._skip:
            # Counting begins here, with batches made: those that were ready before are taken at any pace.
            self._skip, self._made_then = 0, made
            return False
        self._steps += 1
        self._made = made - self._made_then
        self._wall_s += arrived_s - last_s
        self._wait_s += arrived_s - asked_s
        if not self._tried:
            self._busy_s.append(asked_s - last_s)
            return self._steps >= _FIRST_STEPS and self._guess(costs, batch)
        least = _LONG_STEPS if self._wall_s >= _LONG_S else _LEAST_STEPS
        if self._made < max(least, self.workers) or self._steps < least:
            return False
        return self._judge(costs, batch)

    def _guess(self, costs: Costs, batch: int) -> bool:
        """As many workers as make a batch in the time the script takes for one."""
        if not costs.sample_ns:
            return False
        # Not the mean: the first steps of a training load kernels, allocate, compile.
        busy_s = max(sorted(self._busy_s)[(len(self._busy_s) - 1) // 2], 1e-6)
        wanted = math.ceil(_SPARE * batch * costs.sample_ns / 1e9 / busy_s)
        return self._try(max(1, min(wanted, self._most(costs))), costs, batch)

    def _most(self, costs: Costs) -> int:
        """More workers than this would share the same CPUs."""
        return max(1, min(self._most_of_use, round(self._cpus / max(costs.cpu_share, 0.01))))

    def _try(self, workers: int, costs: Costs, batch: int) -> bool:
        ahead = self._ahead_for(workers, costs, batch)
        changes = (workers, ahead) != (self.workers, self.ahead)
        self._tried.add(workers)
        # Batches that are under way now are made by the former number of workers.
        self._begin(max(workers, self.workers) + 2)
        self.workers, self.ahead = workers, ahead
        return changes

    def _ahead_for(self, workers: int, costs: Costs, batch: int) -> int:
        """Two batches for every worker, and enough to continue while one is at a slow sample."""
        ahead = max(2.0 * workers, _LEAST_AHEAD)
        if costs.sample_ns:
            ahead += workers / batch * costs.slowest_ns / costs.sample_ns
        if costs.batch_bytes:
            free = self._memory_bytes if self._memory_bytes is not None else free_bytes()
            if free is not None:
                ahead = min(ahead, _MEMORY_SHARE * free / costs.batch_bytes)
        return max(_LEAST_AHEAD, min(math.ceil(ahead), _MOST_AHEAD))

    def _judge(self, costs: Costs, batch: int) -> bool:
        pace = self._made / self._wall_s if self._wall_s else math.inf
        better = self._best is None or pace > _BETTER * self._best[0]
        if better:
            self._best = (pace, self.workers)
        elif self._direction > 1.0:
            self._direction = 1 / _FACTOR  # more did not help; perhaps fewer leave the main thread more room
        else:
            return self._settle(costs, batch)
        if self._wait_s < _ENOUGH * self._wall_s and self._keeps_up(costs, batch) and self._direction > 1.0:
            return self._settle(costs, batch)
        assert self._best is not None
        following = self._next(self._best[1], costs)
        self._trials += 1
        if following is None or self._trials > _MOST_TRIALS:
            return self._settle(costs, batch)
        return self._try(following, costs, batch)

    def _keeps_up(self, costs: Costs, batch: int) -> bool:
        """Whether as many batches are made as taken: while some are ready, nobody waits even if workers are too slow.

        At the end of an epoch fewer are made too; then the time of a batch decides.
        """
        loading_s = batch * costs.sample_ns / 1e9 / self.workers
        busy_s = (self._wall_s - self._wait_s) / self._steps
        return self._made >= _KEEPS_UP * self._steps or loading_s <= busy_s

    def _next(self, workers: int, costs: Costs) -> int | None:
        """The number to try after `workers`, None when none is left."""
        # How many times as many would be enough, if they did not slow each other down.
        short = self._wall_s / max(self._wall_s - self._wait_s, 1e-9)
        short = min(max(short, self._steps / max(1, self._made)), _LARGEST_FACTOR)
        cpus = self._most(costs)
        if workers < cpus:
            up = min(max(workers + 1, round(workers * _FACTOR), round(workers * short)), cpus)
        else:
            # On a machine that others use too, more workers than CPUs may still get more done.
            up = min(max(workers + 1, round(workers * _FACTOR)), 2 * cpus, self._most_of_use)
        is_busy = self._wait_s < _MOSTLY * self._wall_s  # works more than it waits
        down = max(1, min(workers - 1, round(workers / _FACTOR)))
        # Fewer can only be better where workers and the main thread want the same CPUs.
        crowded = is_busy and workers * costs.cpu_share > self._cpus - 1
        if self._direction > 1.0 and up > workers and up not in self._tried:
            return up
        if crowded and down < workers and down not in self._tried:
            self._direction = 1 / _FACTOR
            return down
        return None

    def _settle(self, costs: Costs, batch: int) -> bool:
        assert self._best is not None
        self.settled_at = self.steps
        return self._try(self._best[1], costs, batch)


# What loading costs, learnt while it goes on, and how many parts a batch is best cut into.

# A part may cost this share of the work in it; more where slow samples hold batches up.
_CHEAP_SHARE = 0.01
_WORTHWHILE_SHARE = 0.04
_STRAGGLING_SHARE = 0.05
# All tasks must fit into the channel: the loader sends them only when a batch is asked for.
_MOST_PACKETS = 256
_FIRST_PART_NS = 300_000.0
_FORGET = 0.95
_MOST_KNOWN = 1 << 16


class Costs:
    """What samples, parts and batches have cost so far, and what follows from it for cutting batches into parts."""

    def __init__(self) -> None:
        self.may_split = True
        self.part_ns = _FIRST_PART_NS
        self.slowest_ns = 0.0
        self.batch_bytes = 0.0
        # Indices of samples far slower than most: of the epochs before, of this one, and those asked for in this one.
        self._known_slow: set[int] = set()
        self._slow_now: set[int] = set()
        self._asked: set[int] = set()
        self._samples = self._fetch_ns = self._slow_ns = self._cpu_ns = 0.0

    def learn(self, tally: Tally, batch_bytes: int) -> None:
        """Old figures count less and less."""
        # A straggler is rare: it is remembered for long.
        self.slowest_ns = max(0.998 * self.slowest_ns, float(tally.slowest_ns))
        self.batch_bytes = max(0.99 * self.batch_bytes, float(batch_bytes))
        self._samples = _FORGET * self._samples + tally.samples
        self._fetch_ns = _FORGET * self._fetch_ns + tally.fetch_ns
        self._slow_ns = _FORGET * self._slow_ns + tally.slow_ns
        self._cpu_ns = _FORGET * self._cpu_ns + tally.cpu_ns
        # The first parts touch fresh memory: what they cost is forgotten, and tried again.
        measured = tally.parts_ns / tally.parts if tally.parts else _FIRST_PART_NS
        self.part_ns += (0.2 if tally.parts else 0.02) * (min(measured, 4 * self.part_ns) - self.part_ns)

    def note_slow(self, index: int) -> None:
        if len(self._slow_now) < _MOST_KNOWN:
            self._slow_now.add(index)

    def begin_epoch(self) -> None:
        """A slow sample is expected to be slow again, until it is not."""
        self._known_slow = self._slow_now | (self._known_slow - self._asked)
        self._slow_now, self._asked = set(), set()

    def slow_ones(self, indices: Sequence[Any]) -> list[int]:
        if not self._known_slow:
            return []
        found = [place for place, index in enumerate(indices) if type(index) is int and index in self._known_slow]
        self._asked.update(indices[place] for place in found)
        return found

    @property
    def sample_ns(self) -> float:
        return self._fetch_ns / self._samples if self._samples else 0.0

    @property
    def cpu_share(self) -> float:
        """How much of its time a worker computes, the rest it waits for files or the network."""
        return min(1.0, self._cpu_ns / self._fetch_ns) if self._fetch_ns else 1.0

    @property
    def has_stragglers(self) -> bool:
        return self._slow_ns > _STRAGGLING_SHARE * self._fetch_ns

    def parts_for(self, samples: int, workers: int, ahead: int, is_last: bool) -> int:
        """For a batch of `samples`, of which `ahead` may be under way; `is_last`: hardly any follow it."""
        if not self.may_split or samples < 2 or workers < 2:
            return 1
        most = min(samples, MOST_PARTS, max(1, _MOST_PACKETS // ahead))
        if not self.sample_ns:
            # Nothing is known yet: the first batch comes soonest when all load it.
            return min(workers, most)
        # At an epoch's end workers have nothing else to do than to help with what is left.
        share = _WORTHWHILE_SHARE if self.has_stragglers or is_last else _CHEAP_SHARE
        size = self.part_ns / (share * self.sample_ns)
        return max(1, min(most, int(samples / max(1.0, size))))
