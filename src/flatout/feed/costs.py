"""What loading costs, learnt while it goes on, and into how many parts a batch is best cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .memory import MOST_PARTS
from .messages import Tally

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
        """This sample took far longer than most."""
        if len(self._slow_now) < _MOST_KNOWN:
            self._slow_now.add(index)

    def begin_epoch(self) -> None:
        """A sample that was slow is taken to be so again, until it is not."""
        self._known_slow = self._slow_now | (self._known_slow - self._asked)
        self._slow_now, self._asked = set(), set()

    def slow_ones(self, indices: Sequence[Any]) -> list[int]:
        """Places of samples that are known to be slow."""
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
