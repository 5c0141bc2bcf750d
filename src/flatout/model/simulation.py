"""Plays a model forward, step by step: the training thread, the device's queue, the workers and the processors.

Everything that is drawn comes from the model's own distributions in a fixed order: equal models take equal time.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from flatout.model.figures import ALL_AT_WORK, COLD_HALF_MS, COLD_MOST_MS, COLD_SHARE, STEPS_AHEAD
from flatout.model.step import Loader, StepModel

# Steps that are played: enough that a queue fills and empties many times.
_STEPS = 72
# Epochs longer than this are not played: their starts are added to the mean step.
_LONGEST_EPOCH = 36
_FILLING = 12
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Played:
    """Milliseconds of a mean step, and how much longer work took because processors were shared."""

    step_ms: float
    main_stretch: float = 1.0
    worker_stretch: float = 1.0
    # Of the step: what the training thread's work takes longer because it waited before.
    cold_ms: float = 0.0


def reckon_cold_ms(model: StepModel, own_ms: float, wait_ms: float) -> float:
    """What so much work takes longer after a wait, where the training thread computes itself."""
    return _cold_ms(model, own_ms, wait_ms + model.asleep_ms, model.beside_ms - model.asleep_ms)


def _cold_ms(model: StepModel, own_ms: float, waited_ms: float, worked_ms: float) -> float:
    """After waiting, and after other work for so long."""
    computing_ms, before_ms = max(0.0, own_ms - model.beside_ms), waited_ms + worked_ms
    if model.device is not None or before_ms <= 0:
        return 0.0
    longer_ms = min(COLD_SHARE * computing_ms * before_ms / (before_ms + COLD_HALF_MS), COLD_MOST_MS)
    return longer_ms * (waited_ms + model.work_cools * worked_ms) / before_ms


def _cold_after_pauses_ms(model: StepModel) -> float:
    """The same after pauses, each of which only the next step feels; of a mean step."""
    own_ms, asleep_ms, worked_ms = model.own_ms, model.asleep_ms, model.beside_ms - model.asleep_ms
    paused_ms = sum(pause.ms for pause in model.pauses.values())
    sleeps = min(1.0, model.idle_ms / paused_ms) if paused_ms > 0 else 0.0
    usual_ms, cold_ms = _cold_ms(model, own_ms, asleep_ms, worked_ms), 0.0
    for pause in model.pauses.values():
        each_ms = pause.ms * pause.every
        after_ms = _cold_ms(model, own_ms, asleep_ms + sleeps * each_ms, worked_ms + (1.0 - sleeps) * each_ms)
        cold_ms += max(0.0, after_ms - usual_ms) / pause.every
    return cold_ms


def simulate(model: StepModel) -> Played:
    """How long a mean step takes."""
    loader = model.loader
    paused_ms = model.paused_ms(is_long=True)
    if loader is None or not loader.workers:
        played = _play_alone(model, 0.0 if loader is None else loader.batch_ms + loader.taking_ms)
    else:
        played = _Play(model, loader).run()
    cold_ms = _cold_after_pauses_ms(model)
    # Long pauses are not played: no queue reaches over them.
    step_ms = max(played.step_ms + paused_ms + cold_ms, model.least_ms)
    return replace(played, step_ms=step_ms, cold_ms=played.cold_ms + cold_ms)


def _play_alone(model: StepModel, data_ms: float) -> Played:
    """Nobody but the training thread and the device: nothing has to be drawn."""
    host_ms, device, paused_ms = model.own_ms + data_ms, model.device, model.paused_ms(is_long=False)
    if device is None:
        cold_ms = _cold_ms(model, model.own_ms, model.asleep_ms, model.beside_ms - model.asleep_ms + data_ms)
        return Played(host_ms + paused_ms + cold_ms, cold_ms=cold_ms)
    work_ms = device.work_ms or 0.0
    wait_ms = max(0.0, work_ms - host_ms) + device.lag_ms
    # A short pause of the host is not noticed by a device with work in its queue.
    return Played(max(host_ms + device.synced * wait_ms + paused_ms, work_ms))


class _Play:
    """The training thread takes batches in order; worker i makes every n-th, as torch hands indices out."""

    def __init__(self, model: StepModel, loader: Loader) -> None:
        self.model, self.loader = model, loader
        self.workers = self._workers()
        self.steps, self.begins = _epochs(loader)
        self.made_ms = _draw_batches(loader, self.steps)
        self.host_ms = _draw_host(model, self.steps)
        cpus, main = model.processors, min(1.0, model.processors.main)
        self.cpus, self.others, self.main_demand, self.main_share = cpus.count, cpus.others, cpus.main, main
        self.together = cpus.together
        self.now = self.main_work = self.main_time = self.worker_work = self.worker_time = 0.0
        self.device_end = self.cold_ms = 0.0
        self.paused_ms = model.paused_ms(is_long=False)

    def _workers(self) -> int:
        loader = self.loader
        return max(loader.workers, math.floor(self.model.processors.count) - 1) if loader.adapts else loader.workers

    def run(self) -> Played:
        self.first, self.sent, self.ready = 0, 0, [math.inf] * self.steps
        self.next_of, self.left = [0] * self.workers, [0.0] * self.workers
        self.active = [False] * self.workers
        # The first steps of a run without further starts only fill the queue.
        skipped, skipped_ms = (_FILLING if len(self.begins) == 1 else 0), 0.0
        for step in range(self.steps):
            if step == skipped:
                skipped_ms = max(self.now, self.device_end)
            if step in self.begins:
                self._begin_epoch(step)
            before = self.now
            self._wait_for(step)
            self._compute(step, self.now - before)
        return Played(
            (max(self.now, self.device_end) - skipped_ms) / (self.steps - skipped) + self._rare_starts_ms(),
            self.main_time / self.main_work if self.main_work > 0 else 1.0,
            self.worker_time / self.worker_work if self.worker_work > 0 else 1.0,
            self.cold_ms / self.steps,
        )

    def _rare_starts_ms(self) -> float:
        """Starts of epochs that are too long to be played: nothing lies ready then."""
        loader = self.loader
        if loader.epoch_steps <= _LONGEST_EPOCH or math.isinf(loader.epoch_steps):
            return 0.0
        usual_ms = max(0.0, loader.batch_ms - loader.batch_ms / self.workers)
        return (loader.start_ms + loader.after_start_ms + usual_ms) / loader.epoch_steps

    def _begin_epoch(self, step: int) -> None:
        """Indices are handed out for as many batches as are made ahead; what was begun before is of no use."""
        self.first, self.sent = step, step
        self.ends = min((begin for begin in self.begins if begin > step), default=self.steps)
        self.next_of = [step + worker for worker in range(self.workers)]
        self.active = [False] * self.workers
        self._pass_time(self.loader.start_ms)
        for _ in range(self.loader.prefetch * self.workers):
            self._send()

    def _send(self) -> None:
        self.sent += 1
        self._start((self.sent - 1 - self.first) % self.workers)

    def _start(self, worker: int) -> None:
        index = self.next_of[worker]
        if not self.active[worker] and index < min(self.sent, self.ends):
            self.active[worker] = True
            self.left[worker] = self.made_ms[index]

    def _wait_for(self, step: int) -> None:
        while self.ready[step] == math.inf:
            self._advance(math.inf, computing=False)
        self._send()

    def _compute(self, step: int, waited_ms: float) -> None:
        """Host work, with the device behind it; then the pause."""
        device, begun = self.model.device, self.now
        host_ms = self.loader.taking_ms + self.host_ms[step]
        host_ms += self.loader.after_start_ms if step in self.begins else 0.0
        cold_ms = reckon_cold_ms(self.model, self.host_ms[step], waited_ms)
        self.cold_ms += cold_ms
        self._work(host_ms + cold_ms)
        if device is not None:
            work_ms = device.work_ms or 0.0
            self.device_end = max(max(self.device_end, begun) + work_ms, self.now)
            behind_ms = self.device_end - self.now
            wait_ms = device.synced * (behind_ms + device.lag_ms)
            self._pass_time(max(wait_ms, behind_ms - STEPS_AHEAD * work_ms, 0.0))
        if self.paused_ms > _TINY:
            self._work(self.paused_ms)

    def _work(self, ms: float) -> None:
        """The training thread is at work for so long, longer where it has to share."""
        left = ms
        self.main_work += ms
        begun = self.now
        while left > _TINY:
            left = self._advance(left, computing=True)
        self.main_time += self.now - begun

    def _pass_time(self, ms: float) -> None:
        end = self.now + ms
        while end - self.now > _TINY:
            self._advance(end - self.now, computing=False)

    def _advance(self, left: float, computing: bool) -> float:
        """On to the next event: a batch is made, or `left` is done. What is then left of it."""
        share = self.loader.computing
        at_work = [worker for worker in range(self.workers) if self.active[worker]]
        wanted = len(at_work) * share * self.loader.wants
        demand = self.others + wanted + (self.main_demand if computing else 0.0)
        slower, full = max(1.0, demand / self.cpus), (ALL_AT_WORK if demand >= self.cpus else 1.0)
        pace = 1.0 + share * (slower * full - 1.0)
        # Each thread has a processor for 1 / slower of the time; those that go on together, all at once less often.
        main_pace = 1.0 + self.main_share * (slower**self.together * full - 1.0) if computing else 1.0
        soonest = min((self.left[worker] for worker in at_work), default=math.inf) * pace
        elapsed = min(left * main_pace, soonest)
        if elapsed == math.inf:
            raise ValueError("a batch that nobody makes")
        self.now += elapsed
        for worker in at_work:
            self.left[worker] -= elapsed / pace
            self.worker_time += elapsed
            self.worker_work += elapsed / pace
            if self.left[worker] <= _TINY:
                self.active[worker] = False
                self.ready[self.next_of[worker]] = self.now
                self.next_of[worker] += self.workers
                self._start(worker)
        return left - elapsed / main_pace


def _epochs(loader: Loader) -> tuple[int, frozenset[int]]:
    """How many steps are played, and which of them begin an epoch."""
    if loader.epoch_steps > _LONGEST_EPOCH:
        return _STEPS, frozenset((0,))
    epochs = max(3, math.ceil(_STEPS / loader.epoch_steps))
    begins = frozenset(round(epoch * loader.epoch_steps) for epoch in range(epochs))
    return round(epochs * loader.epoch_steps), begins


def _draw_batches(loader: Loader, steps: int) -> list[float]:
    """What each batch takes: slow ones are as many as they were, each at a random place of its own stretch of steps."""
    share = loader.slow_share
    if not share:
        return [loader.batch_ms] * steps
    usual_ms = max(0.0, (loader.batch_ms - share * loader.slow_ms) / (1.0 - share))
    made = [max(_TINY, usual_ms)] * steps
    draw, count = random.Random(1), max(1, round(share * steps))
    for index in range(count):
        made[min(steps - 1, int((index + draw.random()) * steps / count))] = loader.slow_ms
    return made


def _draw_host(model: StepModel, steps: int) -> list[float]:
    """The training thread's work in each step: as it differed in the run, with the model's mean."""
    own_ms = model.own_ms
    if not model.spread:
        return [own_ms] * steps
    drawn = [model.spread[index % len(model.spread)] for index in range(steps)]
    mean = sum(drawn) / steps
    return [own_ms * factor / mean for factor in drawn]
