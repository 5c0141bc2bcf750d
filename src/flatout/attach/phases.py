"""The state machine: events of the training thread become steps divided into phases.

At any moment exactly one phase is open. An event closes it and opens the next, so the phases of a step add up to its
wall time by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import tracer as ev
from . import wire
from .recorder import Output
from .steps import OwnCost, TypicalStep, UnreportedCost, steps_per_record, steps_to_rest
from .tracer import clock
from .wire import BACKWARD, CHECKPOINT, DATA, EVAL, FORWARD, GC, H2D, LOGGING, OPTIMIZER, OTHER, SYNC

# Time that is `other` unless a backward follows it without a new batch: then it was a forward pass.
PENDING = 11
SAMPLES_FROM_GRAPH = 4
_MOST_EVENTS_OF_A_PLAIN_STEP = 6.5
_ROUNDS_OF_DOUBT = 8  # gradient accumulation looks the same until its first optimizer step


class Phases:
    """Reads events in order; hands finished steps to the writer."""

    def __init__(self, writer: StepWriter) -> None:
        self._writer = writer
        self._cost = OwnCost()
        self.forget()
        handlers: dict[int, Callable[[int], None]] = {
            ev.REQUEST: self._request,
            ev.REQUEST_NO_GRAD: lambda loader: self._request_batch(loader, evaluating=True, doubtful=False),
            ev.ARRIVED: self._arrived,
            ev.EXHAUSTED: self._no_batch,
            ev.ITERATOR_MADE: self._no_batch,
            ev.EVAL_CALLED: self._note_eval,
            ev.BACKWARD_BEGINS: self._backward_begins,
            ev.BACKWARD_ENDS: self._backward_ends,
            ev.OPTIMIZER_BEGINS: self._optimizer_begins,
            ev.OPTIMIZER_ENDS: self._optimizer_ends,
            ev.ENTER_CLOSURE: lambda _: self._enter(FORWARD),
            ev.ENTER_GRAD: self._enter_grad,
            ev.ENTER_H2D: self._enter_h2d,
            ev.ENTER_SYNC: self._enter_sync,
            ev.ENTER_SYNC_NO_GRAD: self._enter_sync_no_grad,
            ev.ENTER_CHECKPOINT: lambda _: self._enter(CHECKPOINT),
            ev.ENTER_LOGGING: lambda _: self._enter(LOGGING),
            ev.ENTER_GC: lambda _: self._enter(GC),
            ev.LEAVE: self._leave,
            ev.GLOSSED_OVER: self._glossed_over,
            ev.REST: self._rest,
            ev.TRAIN_CALLED: self._train_called,
        }
        self._handlers = [handlers[code] for code in range(len(handlers))]

    def forget(self) -> None:
        """Start afresh, as in a forked child."""
        self.cur = PENDING
        self.after_step = OTHER  # what the time after an optimizer step turned out to be, the last time
        self.syncs = self.copies = 0
        self.last = 0.0
        self.index = -1  # of the last step
        self._steps_per_record = 1
        self._glossed_steps = 0
        self.rest_for = 0  # steps to count only, after each that is looked at
        self._resting = self._learning = False
        self._carved = 0  # pairs of events for waits, copies and rests since events were last read
        self._more_copies = 0  # that share a pair with another
        self.on_device = False
        self._typical = TypicalStep()
        self._fetched = False
        self._ahead = 0
        self.graph_samples = 0
        self.own_s = 0.0  # of a step
        self.owed = UnreportedCost()
        self._open: list[int] = []
        self._plain = self._optimizer_seen = False
        self._rounds = 0
        self._stepping: list[int] = []
        self._in_backward = 0
        self._group: set[int] = set()
        self.leader = 0  # the optimizer that ended the last step; others may have added to it
        self._loader = 0
        self.training_loaders: set[int] = set()
        self._eval_called = self._doubtful_eval = False
        # Set while a module's eval() was called between two steps, and no loader since: what was PENDING before it.
        self._pending_before_eval: float | None = None
        self._eval_since = self._asked_at = self._eval_before = 0.0
        self._doubtful_samples = 0
        self._begin_record()

    def _begin_record(self) -> None:
        self.acc = [0.0] * 12
        self.samples = self.batches = self.backwards = self.steps = 0
        self._backwards_then = self._batches_then = self._samples_then = self._copies_then = 0
        self._acc_then = self.acc[:]
        self.queue = -1
        self.counted = True  # is the number of samples known?
        if self.syncs or self.copies:
            self.syncs = self.copies = 0

    def begin(self, now: float) -> None:
        self.last = now
        self._writer.begin(now)

    def consume(self, codes: Sequence[int], moments: Sequence[float]) -> None:
        begun = clock()
        index = self.index
        handlers = self._handlers
        for code, moment in zip(codes, moments, strict=True):
            # A garbage collection may come, and log, between a look at the clock and the event it was for.
            if moment < self.last:
                moment = self.last
            self.acc[self.cur] += moment - self.last
            self.last = moment
            handlers[code & 31](code >> 5)
        # The cost of this reading falls into the steps to come; it is shared out evenly there.
        steps = max(1, self.index - index)
        looked_at = max(1, steps - self._glossed_steps)
        reading_s = clock() - begun
        self.own_s = self._cost.of(len(codes), self._glossed_steps, reading_s, self._more_copies) / steps
        self.owed.by_steps(steps)
        if moments:
            # Waits, copies and rests do not make a loop any less plain.
            boundaries = (len(codes) - 2 * self._carved) / looked_at
            plain_loop = len(self._group) == 1 and boundaries < _MOST_EVENTS_OF_A_PLAIN_STEP
            looking_s = self._cost.of(len(codes), 0, reading_s) / looked_at
            self._set_pace((moments[-1] - moments[0]) / steps, plain_loop, looking_s)
        self._glossed_steps = self._carved = self._more_copies = 0

    def _set_pace(self, step_s: float, plain_loop: bool, looking_s: float) -> None:
        self._steps_per_record = steps_per_record(self.index, step_s, self.on_device)
        rest_for = steps_to_rest(self.index, step_s, looking_s, self.on_device) if plain_loop else 0
        # Steps are only counted once it is known what one of them is like.
        self.rest_for = rest_for if self._learning else 0
        self._learning = rest_for > 0

    def _rest(self, _: int) -> None:
        self._resting = True
        self._carved += 1

    def _glossed_over(self, steps: int) -> None:
        """That many steps were only counted: they are taken to be like the last one that was traced in full."""
        self._resting = False
        if steps:
            typical = self._typical
            seconds, self.acc[PENDING] = self.acc[PENDING], 0.0
            typical.share_out(seconds, steps, self.acc)
            self.samples += steps * typical.samples
            self.copies += steps * typical.copies
            self._more_copies += steps * max(0, typical.copies - 2)
            self.batches += steps
            self.backwards += steps
            self._batches_then, self._backwards_then = self.batches, self.backwards
            self._acc_then, self._samples_then, self._copies_then = self.acc[:], self.samples, self.copies
            self.index += steps
            self.steps += steps
            self._glossed_steps += steps
            self.cur = PENDING
            self._write_if_full(0)

    def _settle(self, phase: int) -> None:
        self.acc[phase] += self.acc[PENDING]
        self.acc[PENDING] = 0.0
        self._pending_before_eval = None

    @property
    def pending_becomes(self) -> int:
        """The phase that the time after a step most likely turns out to be."""
        return self.after_step if self._pending_before_eval is None else EVAL

    def _settle_after_step(self, phase: int) -> None:
        self._settle(phase)
        if self.backwards == self._backwards_then:
            self.after_step = phase

    # Carved out of whatever is open.

    def _enter(self, phase: int) -> None:
        self._plain = False
        self._open.append(self.cur)
        self.cur = phase

    def _leave(self, _: int) -> None:
        if self._open:
            before = self._open.pop()
            # Without a loader, what follows the copy of a batch is the forward pass.
            self.cur = FORWARD if self.cur == H2D and before == PENDING else before

    def _enter_sync(self, _: int) -> None:
        self.syncs += 1
        self._carved += 1
        self._enter(self.cur if self._keeps_its_time() else SYNC)

    def _enter_sync_no_grad(self, _: int) -> None:
        if self.cur == PENDING and not self._resting and self._pending_before_eval is None:
            self._settle(OTHER)  # no gradients, so what went before was no training forward
        self._enter_sync(_)

    def _enter_h2d(self, more: int) -> None:
        self.copies += 1 + more
        self._more_copies += more
        self._carved += 1
        if self.cur == PENDING and self._pending_before_eval is None:
            self._settle_after_step(OTHER)
        self._enter(self.cur if self._keeps_its_time() else H2D)

    def _keeps_its_time(self) -> bool:
        """All time of an evaluation or a checkpoint is its own, waits and copies as well."""
        return self.cur in (EVAL, CHECKPOINT) or (self.cur == PENDING and self._pending_before_eval is not None)

    def _enter_grad(self, _: int) -> None:
        if self.cur == PENDING:
            self._settle(FORWARD)
        self._enter(BACKWARD)

    # The input side.

    def _request(self, loader: int) -> None:
        if self._plain and loader == self._loader:
            # The usual case, spelt out: the next batch of the loader we train from.
            acc = self.acc
            acc[OTHER] += acc[PENDING]
            acc[PENDING] = 0.0
            self.after_step = OTHER
            self.cur = DATA
            return
        self._request_batch(loader, self._eval_called and loader not in self.training_loaders, doubtful=True)

    def _request_batch(self, loader: int, evaluating: bool, doubtful: bool) -> None:
        self._plain = False
        if self.backwards > self._backwards_then and not self._optimizer_seen:
            self._step_without_optimizer()
        # It began with eval(): a loader may take long until it can be asked for a batch.
        has_begun = evaluating and not doubtful and self._take_from_pending()
        self._settle(OTHER)
        self.after_step = OTHER
        self._open.clear()
        self._stepping.clear()
        self._in_backward = 0
        self._loader = loader
        if evaluating:
            if self.cur != EVAL and not has_begun:
                self._eval_since = self.last
            self.cur = EVAL
            self._asked_at = self.last
            self._eval_before = self.acc[EVAL]
            self._doubtful_eval = doubtful
            return
        if self.cur == EVAL:
            self._writer.span(EVAL, self._eval_since, self.last)
        self.cur = DATA

    def _arrived(self, number: int) -> None:
        samples = number >> 16
        if self.cur == EVAL:
            self._doubtful_samples = samples
            return
        self.cur = FORWARD
        self.samples += samples
        self.counted &= samples > 0
        self.batches += 1
        self._fetched = True
        self.queue = (number & 0xFFFF) - 1

    def _no_batch(self, _: int) -> None:
        if self.cur == DATA:
            self.cur = PENDING

    def _note_eval(self, _: int) -> None:
        self._plain = False
        self._eval_called = True
        if self.cur == PENDING and not self._open and not self._resting:
            self._pending_before_eval = self.acc[PENDING]
            self._eval_since = self.last

    def _train_called(self, _: int) -> None:
        """An evaluation without a loader is over: it ran from eval() to train(), and no backward came in between."""
        if self._take_from_pending():
            self._writer.span(EVAL, self._eval_since, self.last)

    def _take_from_pending(self) -> bool:
        """Book what has passed since a module's eval() as evaluation. Returns whether there was an eval()."""
        before, self._pending_before_eval = self._pending_before_eval, None
        if before is None or self.cur != PENDING:
            return False
        self.acc[EVAL] += self.acc[PENDING] - before
        self.acc[PENDING] = before
        return True

    # The model side.

    def _backward_begins(self, _: int) -> None:
        self._in_backward += 1
        if self.cur == BACKWARD:
            return  # one within another: reentrant checkpointing
        if self.cur == PENDING:
            self._settle_after_step(FORWARD)
        elif self.cur == EVAL:
            self._evaluation_was_over()
        self.cur = BACKWARD
        self.backwards += 1
        if not self._plain:
            self._eval_called = False
            self.training_loaders.add(self._loader)

    def _backward_ends(self, _: int) -> None:
        self._in_backward -= 1
        if self._in_backward <= 0:
            self._in_backward = 0
            self.cur = PENDING

    def _evaluation_was_over(self) -> None:
        """A backward in what was taken for evaluation: a training loader first met after some module's eval()."""
        # What came before the last batch was asked for has been an evaluation all the same.
        self._writer.span(EVAL, self._eval_since, self._asked_at)
        if self._doubtful_eval:
            doubtful_s = self.acc[EVAL] - self._eval_before
            self.acc[FORWARD] += doubtful_s
            self.acc[EVAL] -= doubtful_s
            self.batches += 1
            self.samples += self._doubtful_samples
            self._fetched = True

    def _step_without_optimizer(self) -> None:
        """A batch after a backward, and never an optimizer of torch's: a compiled or foreign one must be at work."""
        self._rounds += 1
        if self._rounds > _ROUNDS_OF_DOUBT:
            self._group.clear()
            self._end_step(0, 0)

    def _optimizer_begins(self, optimizer: int) -> None:
        if self._stepping:
            if optimizer not in self._stepping:
                self._stepping.append(optimizer)
                return  # an optimizer that wraps another: the outer one is the step
            self._stepping.clear()  # its last step raised, and was never seen to end
        self._stepping.append(optimizer)
        self._settle(OTHER)
        self.cur = OPTIMIZER
        # Two optimizers in turn on one batch (a GAN) make one step: the one just written goes on.
        if self._fetched or not optimizer or optimizer in self._group:
            self._group.clear()

    def _optimizer_ends(self, flags: int) -> None:
        if not self._stepping:
            return
        optimizer = self._stepping.pop()
        if self._stepping:
            return
        self._settle(OTHER)
        self.cur = PENDING
        # Nothing out of the ordinary is open or in doubt until some other event says so.
        self._plain = not (self._open or self._in_backward or self._eval_called)
        self._optimizer_seen = True
        self._end_step(optimizer, flags)

    def _end_step(self, optimizer: int, flags: int) -> None:
        if self._group:
            self._group.add(optimizer)
            if self.steps:
                return  # not yet written: the second optimizer's part is simply added to it
            self._writer.end_steps(self.last, self, flags)
            self._begin_record()
            return
        self._group.add(optimizer)
        self.leader = optimizer
        backwards = self.backwards - self._backwards_then
        if not self._fetched and not self._ahead:
            # No loader gave this batch; its size was read off the autograd graph, if it could be.
            self.samples += self.graph_samples * (backwards or 1)
            self.counted &= self.graph_samples > 0
            flags |= SAMPLES_FROM_GRAPH
        # Some loops fetch a batch or two ahead of the step that uses it.
        self._ahead = max(0, self._ahead + self.batches - self._batches_then - backwards)
        self._fetched = False
        self._backwards_then = self.backwards
        self._batches_then = self.batches
        if self._learning:
            copies = self.copies - self._copies_then
            self._typical.learn(self.acc, self._acc_then, self.samples - self._samples_then, copies)
            self._acc_then, self._samples_then, self._copies_then = self.acc[:], self.samples, self.copies
        self.steps += 1
        self.index += 1
        self._write_if_full(flags)

    def _write_if_full(self, flags: int) -> None:
        if self.steps >= self._steps_per_record:
            self._writer.end_steps(self.last, self, flags)
            self._begin_record()

    def finish(self) -> None:
        """Write the steps that were waiting for others to share a record with."""
        if self.steps:
            self._writer.end_steps(self.last, self, 0)
            self._begin_record()


# How steps are written: each has a slot of its own in the recording, several short ones share one.

_PACK = wire.packer("step").pack
_SPAN = wire.packer("span").pack
_STEP = wire.KINDS["step"][0]
_SPAN_KIND = wire.KINDS["span"][0]
_UNKNOWN = wire.UNKNOWN_SAMPLES
_SPAN_WORTH_A_MARK_S = 0.001


class StepWriter:
    """The last record can be written over, by a step that turns out to go on (`steps` 0)."""

    def __init__(self, output: Callable[[], Output]) -> None:
        self._open_output = output
        self.forget()

    def forget(self) -> None:
        """Start afresh, as in a forked child."""
        self._output: Output | None = None
        self._place = -1
        self._start = self._end = 0.0
        self._written: tuple[list[float], tuple[float, ...]] = ([], ())

    def begin(self, now: float) -> None:
        self._end = now

    def end_steps(self, now: float, steps: Phases, flags: int) -> None:
        """Write what was gathered and ends now: new steps, or the rest of the one written last."""
        acc = steps.acc
        counts: tuple[float, ...] = (
            steps.steps, steps.samples, steps.owed.pay(steps.own_s, steps.steps),
            steps.batches, steps.backwards, steps.syncs, steps.copies,
        )  # fmt: skip
        if steps.steps == 0:
            acc = [a + b for a, b in zip(self._written[0], acc, strict=True)]
            counts = tuple(a + b for a, b in zip(self._written[1], counts, strict=True))
        else:
            self._start = self._end
            self._place = -1
        self._end = now
        self._written = acc, counts
        count, samples, own_s, *rest = counts
        body = _PACK(
            _STEP, 0, 0, steps.index, int(self._start * 1e9), int((now - self._start) * 1e9), count,
            samples if steps.counted else _UNKNOWN, *acc[:11], int(own_s * 1e9), steps.queue, *rest, flags,
        )  # fmt: skip
        output = self._output
        if output is None:
            output = self._output = self._open_output()
        if self._place >= 0:
            self._place = output.put(self._place, body)
        else:
            self._place = output.append(body)

    def span(self, phase: int, since: float, now: float, site: int = -1) -> None:
        """Mark an evaluation, a checkpoint or the like on the timeline."""
        if now - since >= _SPAN_WORTH_A_MARK_S:
            self._open_output().append(_SPAN(_SPAN_KIND, 0, 0, phase, int(since * 1e9), int(now * 1e9), site))
