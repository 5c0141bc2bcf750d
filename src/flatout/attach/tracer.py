"""The hot path: boundaries of the training thread are only noted down here, and made into phases later, in batches.

Between two training steps the processor's caches hold the user's work, not ours, so every line of ours runs cold and
costs several times what it would in a loop. A boundary is therefore one integer appended to a list, the moment and
what happened; the state machine (`phases.py`) reads them a few dozen steps at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import get_ident

from .device import DeviceClock

clock = time.perf_counter_ns

# What happened. An event is `moment * CODES + code`.
CODES = 32
(
    REQUEST,  # a batch or an iterator is asked for; note: number of the loader
    REQUEST_NO_GRAD,  # the same with gradients disabled
    ARRIVED,  # the batch is here; note: (samples, batches that were ready)
    EXHAUSTED,  # no batch came
    ITERATOR_MADE,
    EVAL_CALLED,  # some module was put into eval mode
    BACKWARD_BEGINS,
    BACKWARD_ENDS,
    OPTIMIZER_BEGINS,  # note: id of the optimizer
    OPTIMIZER_ENDS,  # note: (id, flags of the step record)
    ENTER_CLOSURE,
    ENTER_GRAD,  # torch.autograd.grad
    ENTER_H2D,
    ENTER_SYNC,
    ENTER_SYNC_NO_GRAD,
    ENTER_CHECKPOINT,
    ENTER_LOGGING,
    ENTER_GC,
    LEAVE,
) = range(19)

# Values of `owner`, the ident of the thread that trains, when there is none.
UNCLAIMED, NOBODY = 0, -1
_FLUSH_EVERY_NS = 100_000_000
_MOST_EVENTS = 400
_BUFFER_LIMIT = 4 * _MOST_EVENTS


class Tracer:
    """The list of events, who may write to it, and when it is read."""

    __slots__ = ("owner", "events", "log", "notes", "note", "inside", "device", "consume", "on_claim", "_flush_at", "every_step")

    def __init__(self, consume: Callable[[list[int], list[object]], None]) -> None:
        self.consume = consume
        self.on_claim: Callable[[int], None] = lambda now: None
        self.device: DeviceClock | None = None
        self.every_step = False  # read the events after every step, as a sync window needs it
        self.forget()

    def forget(self) -> None:
        """Start afresh, as in a forked child."""
        self.owner = UNCLAIMED
        self.events: list[int] = []
        self.log = self.events.append
        # What an event carries besides its moment, in the order of the events that carry something.
        self.notes: list[object] = []
        self.note = self.notes.append
        self.inside = -1  # a phase that will be logged only when the call under way is over
        self._flush_at = 0

    def claim(self) -> bool:
        """Take the calling thread for the one that trains, if none is yet: the first to show a boundary."""
        if self.owner != UNCLAIMED:
            return False
        self.owner = get_ident()
        self.on_claim(clock())
        return True

    def switch_off(self) -> None:
        """From now on no thread is ours, and every patch passes straight through."""
        self.owner = NOBODY

    def step_ended(self, now: int) -> None:
        """After an optimizer has stepped: read the events if it is time."""
        if now >= self._flush_at or len(self.events) > _MOST_EVENTS or self.every_step:
            self._flush_at = now + _FLUSH_EVERY_NS
            self.flush()

    def relieve(self) -> None:
        """Outside of training steps (a long evaluation, a rollout) keep the list short."""
        if len(self.events) > _BUFFER_LIMIT:
            self.flush()

    def flush(self) -> None:
        # Copied first: a garbage collection during the reading may log again.
        events, notes = self.events[:], self.notes[:]
        del self.events[: len(events)]
        del self.notes[: len(notes)]
        self.consume(events, notes)
