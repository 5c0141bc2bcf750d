"""Divides the training thread's time into steps and phases, from boundaries alone.

At any moment exactly one phase is open. A boundary closes it (`acc[phase] += now - last`) and opens the next, so the
phases of a step add up to its wall time by construction. The few lines that do this are repeated in the hot methods
on purpose: a call would cost more than they do.
"""

from __future__ import annotations

import time
from threading import get_ident

from .device import DeviceClock
from .steps import StepWriter
from .wire import BACKWARD, DATA, EVAL, FORWARD, OPTIMIZER, OTHER

clock = time.perf_counter_ns

# Time that is `other` unless a backward follows it without a new batch: then it was a forward pass.
PENDING = 11


class Tracer:
    """The state machine. The patches call it, on the training thread only."""

    __slots__ = (
        "on", "owner", "acc", "cur", "last", "samples", "batches", "backwards", "syncs", "copies", "flags", "queue",
        "stepping", "group", "loader", "training_loaders", "eval_called", "eval_since", "doubtful_eval",
        "doubtful_samples", "graph_samples", "captured_steps", "iterating", "own_ns", "event_ns", "writer", "device",
    )  # fmt: skip

    def __init__(self, writer: StepWriter) -> None:
        self.on = True
        self.writer = writer
        self.device: DeviceClock | None = None
        self.event_ns = 0  # what the boundaries of one batch and step cost, set by calibration
        self.forget()

    def forget(self) -> None:
        """Start afresh, as in a forked child."""
        self.owner = 0
        self.acc = [0] * 12
        self.cur = PENDING
        self.last = 0
        self.samples = self.batches = self.backwards = self.syncs = self.copies = self.flags = 0
        self.queue = -1
        self.stepping = 0
        self.group: set[int] = set()
        self.loader = 0
        self.training_loaders: set[int] = set()
        self.eval_called = self.doubtful_eval = False
        self.eval_since = self.doubtful_samples = 0
        self.graph_samples = self.captured_steps = 0
        self.iterating = False
        self.own_ns = 0

    def mine(self) -> bool:
        """Is this call on the thread that trains? The first thread to show a boundary is taken for it."""
        if self.owner == 0:
            self.owner = get_ident()
            self.last = clock()
            self.writer.begin(self.last)
        return self.on and self.owner == get_ident()

    # Phases carved out of whatever is open.

    def enter(self, phase: int) -> int:
        """Open `phase` inside the open one; hand the result to `leave`."""
        now = clock()
        before = self.cur
        self.acc[before] += now - self.last
        self.last = now
        self.cur = phase
        return before

    def leave(self, before: int) -> int:
        """Close the innermost phase, back to the one it was carved from. Returns the moment."""
        now = clock()
        self.acc[self.cur] += now - self.last
        self.last = now
        self.cur = before
        return now

    def settle(self, phase: int) -> None:
        """Book the time whose phase was still open to doubt."""
        acc = self.acc
        acc[phase] += acc[PENDING]
        acc[PENDING] = 0

    # The input side.

    def request(self, loader: int, grad: bool) -> None:
        """The script asks a loader for a batch, or for an iterator."""
        now = clock()
        acc = self.acc
        acc[self.cur] += now - self.last
        self.last = now
        acc[OTHER] += acc[PENDING]
        acc[PENDING] = 0
        self.stepping = 0
        self.loader = loader
        if not grad or (self.eval_called and loader not in self.training_loaders):
            if self.cur != EVAL:
                if self.device is not None:
                    self.device.drop()
                self.eval_since = now
                self.doubtful_eval = grad
                self.cur = EVAL
            return
        if self.cur == EVAL:
            self.writer.span(EVAL, self.eval_since, now)
        self.cur = DATA
        if self.device is not None and not self.iterating:
            # The wait for a new iterator and for its first batch is one wait.
            self.device.request(self.writer.index + 1)
        self.iterating = False

    def arrived(self, samples: int, queue: int) -> None:
        """The batch is here."""
        now = clock()
        self.acc[self.cur] += now - self.last
        self.last = now
        if self.cur == EVAL:
            self.doubtful_samples = samples
            return
        self.cur = FORWARD
        self.samples += samples
        self.batches += 1
        self.queue = queue
        if self.device is not None:
            self.device.arrived()

    def exhausted(self) -> None:
        """No batch came: the epoch is over, or fetching failed."""
        now = clock()
        self.acc[self.cur] += now - self.last
        self.last = now
        if self.cur == DATA:
            self.cur = PENDING
            if self.device is not None:
                self.device.drop()

    def iterator_made(self) -> None:
        """The loader's iterator is there; no batch yet."""
        now = clock()
        self.acc[self.cur] += now - self.last
        self.last = now
        if self.cur == DATA:
            self.cur = PENDING
            self.iterating = True

    # The model side.

    def backward_begins(self) -> None:
        now = clock()
        acc = self.acc
        cur = self.cur
        acc[cur] += now - self.last
        self.last = now
        if cur == PENDING:
            acc[FORWARD] += acc[PENDING]
            acc[PENDING] = 0
        elif cur == EVAL:
            self._evaluation_was_over(now)
        self.cur = BACKWARD
        self.backwards += 1
        self.eval_called = False
        self.training_loaders.add(self.loader)
        if self.device is not None:
            self.device.backward_begins()

    def backward_ends(self) -> None:
        now = clock()
        self.acc[self.cur] += now - self.last
        self.last = now
        self.cur = PENDING
        if self.device is not None:
            self.device.backward_ends()

    def _evaluation_was_over(self, now: int) -> None:
        """A backward in what was taken for evaluation: a training loader first met after some module's eval()."""
        if self.doubtful_eval:
            self.acc[FORWARD] += self.acc[EVAL]
            self.acc[EVAL] = 0
            self.batches += 1
            self.samples += self.doubtful_samples
        else:
            self.writer.span(EVAL, self.eval_since, now)

    def optimizer_begins(self, optimizer: int) -> None:
        if self.stepping and self.stepping != optimizer:
            return  # an optimizer that wraps another: the outer one is the step
        now = clock()
        self.acc[self.cur] += now - self.last
        self.last = now
        self.settle(OTHER)
        self.cur = OPTIMIZER
        self.stepping = optimizer
        # Two optimizers in turn on one batch (a GAN) make one step: the one just written goes on.
        if self.batches or not self.group or optimizer in self.group:
            self.group.clear()

    def optimizer_ends(self, optimizer: int, flags: int = 0) -> None:
        """An optimizer has stepped: this ends the step."""
        if self.stepping != optimizer:
            return
        now = clock()
        acc = self.acc
        acc[self.cur] += now - self.last
        self.last = now
        self.cur = PENDING
        self.stepping = 0
        goes_on = bool(self.group)
        self.group.add(optimizer)
        if self.device is not None:
            if self.device.capturing():
                self.captured_steps += 1
                return
            self.device.optimizer_ends(self.writer.index + (0 if goes_on else 1))
            self.own_ns += self.device.own_ns
            self.device.own_ns = 0
        self.writer.end_step(now, self, goes_on, flags)
        self.acc = [0] * 12
        self.samples = self.batches = self.backwards = self.syncs = self.copies = 0
        self.queue = -1
        # Writing is paid for in the next step; the boundaries were in this one.
        self.own_ns = clock() - now + self.event_ns
