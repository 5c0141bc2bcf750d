"""Which samples are to be loaded next: batches in flight, cut into parts, and loaded again when a worker died."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .crew import MAIN_SEAT, Crew
from .memory import MOST_PARTS, SLOTS, Area, Memory, Place, Segment
from .messages import LARGEST, NO_SLOT, Task, read_task, write_retire, write_task
from .tuning import Costs

# The share of workers that may begin slow samples early, and the most of them in one batch.
_EARLY_SHARE = 0.75
_MOST_EARLY = 8


@dataclass(slots=True)
class Batch:
    """One in flight."""

    number: int
    indices: Any
    cuts: tuple[int, ...]  # where its parts begin, and its end; empty: it is one
    ticket: int
    slot: int
    segment: Segment | None = None

    @property
    def parts(self) -> int:
        return max(1, len(self.cuts) - 1)


@dataclass(frozen=True, slots=True)
class Work:
    batch: int
    first: int
    indices: list[Any]


@dataclass(frozen=True, slots=True)
class Epoch:
    """What tasks of one pass over the data have in common."""

    number: int
    base_seed: int


class Schedule:
    def __init__(self, crew: Crew, costs: Costs) -> None:
        self.in_flight: dict[int, Batch] = {}
        self._crew = crew
        self._memory: Memory = crew.memory
        self._costs = costs
        self._area = Area(self._memory, MAIN_SEAT, 0)
        self._backlog: deque[bytes] = deque()
        self._slots = deque(range(SLOTS))
        self._ticket = 0
        self._epoch = Epoch(0, 0)
        self._deaths: dict[tuple[int, int], int] = {}
        # Parts that were sent before their turn: (ticket, slot, part).
        self._early: list[tuple[int, int, int]] = []

    @property
    def has_backlog(self) -> bool:
        return bool(self._backlog)

    def begin(self, epoch: Epoch) -> None:
        """Forget what is left of the last epoch."""
        # Workers that have read their order to leave are leaving; only orders that nobody has read are sent again.
        untold = [*self._crew.take_back_tasks(), *self._backlog].count(write_retire())
        self._backlog = deque([write_retire()] * untold)
        for batch in list(self.in_flight.values()):
            self.finish(batch)
        self._deaths.clear()
        self._early.clear()
        self._costs.begin_epoch()
        self._epoch = epoch

    def add(self, number: int, indices: Any, ahead: int, is_last: bool) -> None:
        """`ahead` batches may be under way; `is_last`: it is among the last of its epoch."""
        cuts: tuple[int, ...] = ()
        slow: list[int] = []
        if isinstance(indices, Sequence) and len(indices) > 1:
            workers = len(self._crew.members)
            parts = self._costs.parts_for(len(indices), workers, ahead, is_last)
            if self._costs.may_split and workers > 1:
                slow = self._costs.slow_ones(indices)[:_MOST_EARLY]
            cuts = _cuts(len(indices), min(parts, MOST_PARTS - 2 * len(slow)), slow)
        self._issue(number, indices, cuts, slow=slow)

    def _issue(self, number: int, indices: Any, cuts: tuple[int, ...], first: bool = False, slow: Any = ()) -> None:
        """`first`: before all that waits; `slow`: places of samples to be begun before their turn."""
        self._ticket += 1
        slot = NO_SLOT
        if cuts and self._slots:
            slot = self._slots.popleft()
            self._memory.open_slot(slot, self._ticket, len(cuts) - 1)
        else:
            cuts = ()
        batch = Batch(number, indices, cuts, self._ticket, slot)
        self.in_flight[batch.ticket] = batch
        packets = [
            self._packet(batch, part)
            for part in range(batch.parts)
            if not (cuts and cuts[part] in slow and self._send_early(batch, part))
        ]
        if first:
            self._backlog.extendleft(reversed(packets))
        else:
            self._backlog.extend(packets)

    def _send_early(self, batch: Batch, part: int) -> bool:
        """Have a slow sample begun now, unless that would leave too few workers for what is wanted next."""
        going = [
            early
            for early in self._early
            if early[0] in self.in_flight and not self._memory.has_part(early[1], early[2])
        ]
        self._early = going
        if len(going) >= _EARLY_SHARE * len(self._crew.members):
            return False
        try:
            self._crew.send_first(self._packet(batch, part))
        except BlockingIOError:
            return False
        self._early.append((batch.ticket, batch.slot, part))
        return True

    def _packet(self, batch: Batch, part: int) -> bytes:
        start, stop = self._span(batch, part)
        indices = batch.indices if batch.parts == 1 else batch.indices[start:stop]
        task = Task(
            batch.ticket, self._epoch.base_seed, self._epoch.number, batch.slot, part, batch.parts, batch.number, start,
            indices,
        )  # fmt: skip
        packet = write_task(task, None)
        return packet if len(packet) <= LARGEST else write_task(task, self._aside(batch, indices))

    def _aside(self, batch: Batch, indices: Any) -> Place:
        raw = pickle.dumps(indices, protocol=5)
        segment = batch.segment = self._area.take(len(raw))
        segment.mapped[: len(raw)] = raw
        return Place(MAIN_SEAT, segment.number, segment.offset, len(raw), 0)

    @staticmethod
    def _span(batch: Batch, part: int) -> tuple[int, int]:
        return (batch.cuts[part], batch.cuts[part + 1]) if batch.cuts else (0, 0)

    def send(self) -> None:
        """Hand out what the channel takes."""
        while self._backlog:
            try:
                self._crew.tasks.send(self._backlog[0])
            except BlockingIOError:
                return
            self._backlog.popleft()

    def let_go(self, workers: int) -> None:
        """Send that many workers home, those that are free first."""
        self._crew.leaving += workers
        self._backlog = deque([write_retire()] * workers + self._crew.take_back_tasks() + list(self._backlog))
        self.send()

    def finish(self, batch: Batch) -> None:
        """It has arrived, or is not wanted any more."""
        del self.in_flight[batch.ticket]
        if batch.slot != NO_SLOT:
            self._memory.close_slot(batch.slot)
            self._slots.append(batch.slot)
        if batch.segment is not None:
            self._area.give_back(batch.segment)

    def load_whole(self, ticket: int) -> None:
        """Its samples cannot be sent between workers: from now on one worker loads a whole batch."""
        self._costs.may_split = False
        batch = self.in_flight.get(ticket)
        if batch is not None:
            self.finish(batch)
            self._issue(batch.number, batch.indices, (), first=True)

    def work_of(self, seat: int) -> Work | None:
        """What the worker on `seat` is loading, or was when it died."""
        claim = self._memory.claimed(seat)
        batch = self.in_flight.get(claim.ticket)
        if batch is None:
            return None
        indices = list(batch.indices) if isinstance(batch.indices, Sequence) else [batch.indices]
        start, stop = self._span(batch, claim.part) if batch.parts > 1 else (0, len(indices))
        if claim.place >= 0:
            start, stop = start + claim.place, start + claim.place + 1
        return Work(batch.number, start, indices[start:stop])

    def blame(self, seat: int) -> tuple[list[Any], int]:
        """Samples that the dead worker on `seat` was loading, and how often a worker has died on one of them."""
        work = self.work_of(seat)
        if work is None:
            return [], 0
        places = [(work.batch, work.first + i) for i in range(len(work.indices))]
        for place in places:
            self._deaths[place] = self._deaths.get(place, 0) + 1
        return work.indices, max((self._deaths[place] for place in places), default=0)

    def replay(self, dead_seats: Sequence[int]) -> None:
        """After a death: load what was lost again, before everything that waits."""
        queued = [p for p in self._crew.take_back_tasks() if read_task(p) is not None]
        waiting = [*queued, *self._backlog]
        known = {(task.ticket, task.part) for packet in waiting for task in _tasks(packet)}
        for member in self._crew.members.values():
            if member.seat not in dead_seats:
                claim = self._memory.claimed(member.seat)
                known.add((claim.ticket, claim.part))
        dead = {self._memory.claimed(seat).ticket for seat in dead_seats}
        lost = [b for b in self.in_flight.values() if b.ticket in dead or not self._is_known(b, known)]
        again = {batch.ticket for batch in lost}
        self._backlog = deque(p for p in waiting if not any(task.ticket in again for task in _tasks(p)))
        for batch in sorted(lost, key=lambda b: b.number, reverse=True):
            self.finish(batch)
            self._issue(batch.number, batch.indices, self._finest(batch), first=True)

    def _finest(self, batch: Batch) -> tuple[int, ...]:
        """One sample a part, so that a second death names the sample it is due to."""
        fine = self._costs.may_split and isinstance(batch.indices, Sequence)
        return _cuts(len(batch.indices), min(len(batch.indices), MOST_PARTS)) if fine else ()

    def _is_known(self, batch: Batch, known: set[tuple[int, int]]) -> bool:
        """Whether every part of it waits, is being worked on, or is done."""
        for part in range(batch.parts):
            if (batch.ticket, part) not in known and not (
                batch.slot != NO_SLOT and self._memory.has_part(batch.slot, part)
            ):
                return False
        return True


def _cuts(samples: int, parts: int, alone: Sequence[int] = ()) -> tuple[int, ...]:
    """Where `parts` equal parts begin, and the end; each place of `alone` is a part by itself. Empty: not cut."""
    cuts = {part * samples // parts for part in range(parts + 1)}
    cuts.update(alone, (place + 1 for place in alone))
    return tuple(sorted(cuts)) if len(cuts) > 2 else ()


def _tasks(packet: bytes) -> list[Task]:
    read = read_task(packet)
    return [] if read is None else [read[0]]
