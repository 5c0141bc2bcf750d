"""The hot path: events of the training thread are only noted here, and turned into phases later, many at a time.

Between two training steps the CPU caches hold the user's work, so every line of ours runs cold and costs several times
what it would in a loop. An event is therefore two numbers appended to two lists: what happened, and when. The state
machine (`phases.py`) reads them every few dozen steps. Two lists, because a garbage collection or a signal handler may
come in between and log as well: entry n of one list still belongs to entry n of the other.

Where steps are so short that tracing would show, only some are traced in full (`steps.py`); the others are counted, and
what interrupts them (a wait for the device, an evaluation, a checkpoint, the end of an epoch) is still seen.
`owner` is the thread that trains; `looking` is the same while steps are traced in full.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol

clock = time.perf_counter

# What happened is `number << 5 | code`, with a number that goes with some of the codes.
(
    REQUEST,  # a batch or an iterator is asked for; number: of the loader
    REQUEST_NO_GRAD,  # the same with gradients disabled
    ARRIVED,  # the batch is here; number: samples << 16 | batches that were ready + 1
    EXHAUSTED,  # no batch came
    ITERATOR_MADE,
    EVAL_CALLED,  # some module was put into eval mode
    BACKWARD_BEGINS,
    BACKWARD_ENDS,
    OPTIMIZER_BEGINS,  # number: of the optimizer
    OPTIMIZER_ENDS,  # number: flags of the step record
    ENTER_CLOSURE,
    ENTER_GRAD,  # torch.autograd.grad
    ENTER_H2D,  # number: of copies beyond the first
    ENTER_SYNC,
    ENTER_SYNC_NO_GRAD,
    ENTER_CHECKPOINT,
    ENTER_LOGGING,
    ENTER_GC,
    LEAVE,
    GLOSSED_OVER,  # number: of steps that were only counted since REST
    REST,  # the steps that follow are only counted
    TRAIN_CALLED,  # the first module after an EVAL_CALLED was put back into training mode
) = range(22)

# Values of `owner`, the ident of the thread that trains, when there is none.
UNCLAIMED, NOBODY = 0, -1
_RESTING = -2
_FLUSH_EVERY_S = 0.1
# Events that are read at once; more of them (a long rollout, an evaluation) are not left lying.
MOST_EVENTS = 400


class Window(Protocol):
    """Wants to know the boundaries of one step: what its lines take, and their operations in backward."""

    def arrived(self) -> None: ...
    def backward_begins(self, tensors: Any, create_graph: bool, is_partial: bool) -> None: ...
    def backward_ends(self) -> None: ...
    def optimizer_begins(self, optimizer: Any) -> None: ...
    def optimizer_ends(self) -> None: ...


class Tracer:
    """The list of events, who may write to it, and when it is read."""

    __slots__ = (
        "_consume",
        "_copies_at",
        "at",
        "codes",
        "ended",
        "every_step",
        "flush_at",
        "flushes",
        "glossed_over",
        "inside",
        "log",
        "looking",
        "moments",
        "on_claim",
        "on_device",
        "on_wake",
        "owner",
        "proven",
        "rest_for",
        "want_graph",
        "want_look",
        "window",
    )

    def __init__(self, consume: Callable[[list[int], list[float]], None]) -> None:
        self._consume = consume
        self.on_claim: Callable[[float], None] = lambda now: None
        self.on_wake: Callable[[int], None] = lambda steps: None  # told how many steps went by
        # The patches hold on to these: they are emptied, never replaced.
        self.codes: list[int] = []
        self.moments: list[float] = []
        self.log = self.codes.append
        self.at = self.moments.append
        self.forget()

    def forget(self) -> None:
        """Start afresh, as in a forked child."""
        self.owner = self.looking = UNCLAIMED
        self.rest_for = self.glossed_over = 0
        self.ended = 0  # steps of optimizers, looked at or not
        self.on_device = False  # has the script made use of CUDA?
        self.codes.clear()
        self.moments.clear()
        self._copies_at = -1  # where the last copies were logged
        self.inside = -1  # a phase that will be logged only when the call under way is over
        self.want_graph = True  # the next backward should look at the autograd graph
        self.window: Window | None = None  # the sampled step that is under way
        self.want_look = True  # either of the two: asked at every batch and backward
        self.every_step = False  # read the events after every step, as a sync window needs it
        self.flush_at = 0.0
        self.flushes = 0
        self.proven = False

    def claim(self) -> bool:
        """Take the calling thread for the one that trains, if none is yet: the first to show a boundary."""
        if self.owner != UNCLAIMED:
            return False
        self.owner = self.looking = get_ident()
        self.on_claim(clock())
        return self.owner != NOBODY  # starting may have failed

    def claim_training(self) -> bool:
        """The calling thread runs a backward or an optimizer: it trains, whoever has only fetched batches so far."""
        if self.owner == UNCLAIMED:
            return self.claim()
        if self.owner == NOBODY or self.proven or self.flushes:
            return False
        self.proven = any(code & 31 in (BACKWARD_BEGINS, OPTIMIZER_BEGINS) for code in self.codes)
        if self.proven:
            return False
        self.forget()
        return self.claim()

    def switch_off(self) -> None:
        """From now on no thread is ours, and every patch passes straight through."""
        self.owner = self.looking = NOBODY

    @property
    def is_resting(self) -> bool:
        return self.looking == _RESTING

    def rest(self) -> None:
        """Only count the next `rest_for` steps: they are too short to be looked at one by one."""
        self.log(REST)
        self.at(clock())
        self.looking = _RESTING

    def wake(self) -> None:
        """Look closely again."""
        if self.looking == _RESTING:
            self.log(self.glossed_over << 5 | GLOSSED_OVER)
            self.at(clock())
            steps, self.glossed_over = self.glossed_over, 0
            self.looking = self.owner
            self.on_wake(steps)

    def add_copies(self, begun: float, now: float, passed: int, passed_s: float) -> None:
        """A copy to the device, and so many before it that were not timed. Copies with no event in between are one."""
        place, seconds = self._copies_at, now - begun + passed_s
        # By place, not from the end: a garbage collection may log at any moment.
        if 0 <= place == len(self.codes) - 2:
            self.codes[place] += 1 + passed << 5
            self.moments[place + 1] = min(now, self.moments[place + 1] + seconds)
            return
        self._copies_at = len(self.codes)
        self.log(passed << 5 | ENTER_H2D)
        self.at(begun)
        self.log(LEAVE)
        self.at(now)
        self.relieve()

    def relieve(self) -> None:
        """Outside of training steps (a long evaluation, a rollout) keep the list short."""
        if len(self.codes) > MOST_EVENTS:
            self.flush(clock())

    def flush(self, now: float) -> None:
        """Have the events read."""
        self.flush_at = 0.0 if self.every_step else now + _FLUSH_EVERY_S
        self.flushes += 1
        self._copies_at = -1
        # Copied first: a garbage collection during the reading may log again.
        moments = self.moments[:]
        count = len(moments)
        codes = self.codes[:count]
        del self.moments[:count]
        del self.codes[:count]
        self._consume(codes, moments)
        if self.every_step:
            self.flush_at = 0.0
