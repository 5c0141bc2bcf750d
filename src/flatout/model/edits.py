"""Changes of the model: what a fix would make different. Several are applied one after another.

An amount that the line sampler gave is as sure as its looks: `is_sampled`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar

from flatout.model.figures import FIRST_TOUCH_MS, IN_A_WORKER, LEAST_HOST
from flatout.model.step import Loader, StepModel
from flatout.records.message import Message, message


class Edit(ABC):
    """A frozen record."""

    __slots__ = ()
    # Says in few words what it changes, and the fields that these words hold.
    _WORDS: ClassVar[str]
    _FACTS: ClassVar[tuple[str, ...]] = ("ms",)

    @abstractmethod
    def apply(self, model: StepModel) -> StepModel: ...

    def words(self, model: StepModel) -> Message:
        return message(self._WORDS, **{name: getattr(self, name) for name in self._FACTS})


class _OfLoader(Edit):
    """Without a loader that is known it changes nothing."""

    __slots__ = ()

    def apply(self, model: StepModel) -> StepModel:
        return model if model.loader is None else replace(model, loader=self.change(model.loader, model))

    @abstractmethod
    def change(self, loader: Loader, model: StepModel) -> Loader: ...


@dataclass(frozen=True, slots=True)
class Edits:
    """Edits of the model: what is likely, and at worst and at best where that is not sure."""

    likely: tuple[Edit, ...]
    worst: tuple[Edit, ...] = ()
    best: tuple[Edit, ...] = ()
    # No more than this can go; how much would is not known.
    is_most: bool = False

    @classmethod
    def between(cls, cases: Iterable[Iterable[Edit]]) -> Edits:
        """At worst, as expected, and at best."""
        worst, likely, best = map(tuple, cases)
        return cls(likely, worst, best)


def apply_edits(model: StepModel, edits: Iterable[Edit]) -> StepModel:
    return reduce(lambda edited, edit: edit.apply(edited), edits, model)


# The training thread.


@dataclass(frozen=True, slots=True)
class LessHost(Edit):
    """The training thread does so much less in a step: in this phase first, then in the others alike."""

    _WORDS = "model.less_host"

    ms: float
    phase: str | None = None
    is_sampled: bool = True
    # It sleeps meanwhile.
    is_idle: bool = False
    # It is the model's own computing, and no other work after which that is slower.
    of_model: bool = False

    def apply(self, model: StepModel) -> StepModel:
        host, aside, computing, besides = dict(model.host_ms), dict(model.aside_ms), *model.warm
        # It was measured where computing took longer, and other work, but no sleep.
        asleep_ms = min(self.ms, model.idle_ms) if self.is_idle else 0.0
        known_ms = sum(aside.values()) if self.phase is None else aside.get(self.phase, 0.0)
        beside_ms = 0.0 if self.of_model else min(self.ms - asleep_ms, known_ms)
        left_ms = asleep_ms + beside_ms * besides + (self.ms - asleep_ms - beside_ms) * computing
        idle_ms = max(0.0, model.idle_ms - self.ms) if self.is_idle else model.idle_ms
        if self.phase is not None and self.phase in host:
            taken_ms = min(left_ms, host[self.phase])
            host[self.phase] -= taken_ms
            left_ms -= taken_ms
            aside_ms = aside.get(self.phase, 0.0) - (0.0 if self.of_model else taken_ms)
            aside[self.phase] = min(host[self.phase], max(0.0, aside_ms))
        rest_ms = sum(host.values())
        # Something is left of it: it still calls the model.
        least = LEAST_HOST * model.step_ms / rest_ms if rest_ms > 0 else 1.0
        kept = min(1.0, max(least, 1.0 - left_ms / rest_ms)) if rest_ms > 0 and left_ms > 0 else 1.0
        host, aside = ({name: ms * kept for name, ms in some.items()} for some in (host, aside))
        if sum(model.aside_ms.values()) >= model.asleep_ms:
            # It is known beside what it sleeps: no longer than that is left.
            idle_ms = min(idle_ms, sum(aside.values()) + sum(pause.ms for pause in model.pauses.values()))
        return replace(model, host_ms=host, aside_ms=aside, idle_ms=idle_ms)


@dataclass(frozen=True, slots=True)
class LessPause(Edit):
    """Evaluations, checkpoints or logging take so much less of a mean step."""

    phase: str
    ms: float
    # Where it comes so many times less often.
    times: int | None = None

    def apply(self, model: StepModel) -> StepModel:
        known = model.pauses.get(self.phase)
        known_ms, edited = 0.0, model
        if known is not None:
            every = known.every * (self.times or 1)
            known_ms, left = known.ms, replace(known, ms=max(0.0, known.ms - self.ms), every=every)
            # What it sleeps is in its pauses, as far as they are long enough for it.
            idle_ms = max(0.0, model.idle_ms - self.ms)
            edited = replace(model, pauses={**model.pauses, self.phase: left}, idle_ms=idle_ms)
        more_ms = self.ms - known_ms
        # What prepares it is in the step, and is spared with it.
        return LessHost(more_ms, is_idle=True).apply(edited) if more_ms > 1e-9 else edited

    def words(self, model: StepModel) -> Message:
        if self.times is None:
            return message("model.less_pause", ms=self.ms, phase=self.phase)
        return message("model.rarer_pause", ms=self.ms, phase=self.phase, times=self.times)


# The device.


@dataclass(frozen=True, slots=True)
class LessDevice(Edit):
    """The GPU works so much less in a step; more, where it is negative."""

    ms: float

    def apply(self, model: StepModel) -> StepModel:
        device = model.device
        if device is None or device.work_ms is None:
            return model
        return replace(model, device=replace(device, work_ms=max(0.0, device.work_ms - self.ms)))

    def words(self, model: StepModel) -> Message:
        return message("model.more_device" if self.ms < 0 else "model.less_device", ms=abs(self.ms))


@dataclass(frozen=True, slots=True)
class NoSync(Edit):
    """The host no longer waits for the device there: so much less in a step."""

    _WORDS = "model.no_sync"

    ms: float
    waited_ms: float

    def apply(self, model: StepModel) -> StepModel:
        if model.device is None:
            return LessHost(self.ms, is_sampled=False).apply(model)
        left = max(0.0, 1.0 - self.ms / self.waited_ms) if self.waited_ms > 0 else 0.0
        return replace(model, device=replace(model.device, synced=model.device.synced * left))


@dataclass(frozen=True, slots=True)
class LessStep(Edit):
    """Whatever makes the step is done so much sooner: the training thread and the GPU behind it.

    Where the GPU sets the pace, the host waits for it in its launches, so a quicker GPU spares both.
    """

    _WORDS = "model.less_step"

    ms: float

    def apply(self, model: StepModel) -> StepModel:
        return LessHost(self.ms, is_sampled=False, of_model=True).apply(LessDevice(self.ms).apply(model))


@dataclass(frozen=True, slots=True)
class AtLeast(Edit):
    """Something beside the training thread, or the ranks together, need so long for a step."""

    _WORDS = "model.at_least"

    ms: float

    def apply(self, model: StepModel) -> StepModel:
        return replace(model, least_ms=max(model.least_ms, self.ms))


# The loader.


@dataclass(frozen=True, slots=True)
class Workers(_OfLoader):
    """So many of them make the batches; none at all: the training thread does."""

    count: int

    def change(self, loader: Loader, model: StepModel) -> Loader:
        if loader.workers or not self.count:
            return replace(loader, workers=self.count, adapts=False)
        touch_ms = FIRST_TOUCH_MS if model.device is None else 0.0
        taking_ms = loader.taking_ms + loader.handover_ms + touch_ms
        making_ms = loader.batch_ms * IN_A_WORKER
        return replace(loader, workers=self.count, batch_ms=making_ms, taking_ms=taking_ms)

    def words(self, model: StepModel) -> Message:
        now = model.loader.workers if model.loader is not None else 0
        return message("model.workers", count=self.count, now=now)


@dataclass(frozen=True, slots=True)
class BatchCosts(_OfLoader):
    """One process takes so long for the samples of a step that took `now_ms`, as a mean over the run."""

    _WORDS, _FACTS = "model.batch_costs", ("ms", "now_ms")

    ms: float
    now_ms: float

    def change(self, loader: Loader, model: StepModel) -> Loader:
        if self.now_ms <= 0:
            return loader
        # In the steady part, and alone on a processor, it is another time, of which the same part is left.
        part = max(0.0, self.ms / self.now_ms)
        after_ms = loader.after_start_ms * (part if loader.stays else 1.0)
        return replace(loader, batch_ms=loader.batch_ms * part, slow_ms=loader.slow_ms * part, after_start_ms=after_ms)


@dataclass(frozen=True, slots=True)
class MoreBatch(_OfLoader):
    """One process takes so much longer for the samples of a step: work that moved, with the processors it wants."""

    ms: float
    wants: float = 1.0

    def change(self, loader: Loader, model: StepModel) -> Loader:
        making_ms = max(0.0, loader.batch_ms + self.ms)
        part = min(1.0, max(0.0, self.ms) / making_ms) if making_ms > 0 else 0.0
        return replace(loader, batch_ms=making_ms, wants=loader.wants + part * (self.wants - loader.wants))

    def words(self, model: StepModel) -> Message:
        return message("model.less_batch" if self.ms < 0 else "model.more_batch", ms=abs(self.ms))


@dataclass(frozen=True, slots=True)
class EvenBatches(_OfLoader):
    """No batch takes far longer than the others."""

    def change(self, loader: Loader, model: StepModel) -> Loader:
        if not loader.slow_share:
            return loader
        usual_ms = (loader.batch_ms - loader.slow_share * loader.slow_ms) / (1.0 - loader.slow_share)
        return replace(loader, batch_ms=max(0.0, usual_ms), slow_share=0.0, slow_ms=0.0)

    def words(self, model: StepModel) -> Message:
        return message("model.even_batches", share=model.loader.slow_share if model.loader else 0.0)


@dataclass(frozen=True, slots=True)
class Prefetch(_OfLoader):
    """Each worker makes so many batches ahead."""

    _WORDS, _FACTS = "model.prefetch", ("count",)

    count: int

    def change(self, loader: Loader, model: StepModel) -> Loader:
        return replace(loader, prefetch=self.count)


@dataclass(frozen=True, slots=True)
class LessTaking(Edit):
    """Taking a batch that lies ready costs the training thread so much less."""

    _WORDS = "model.less_taking"

    ms: float

    def apply(self, model: StepModel) -> StepModel:
        loader = model.loader
        if loader is None:
            return LessHost(self.ms, "data").apply(model)
        return replace(model, loader=replace(loader, taking_ms=max(0.0, loader.taking_ms - self.ms)))


@dataclass(frozen=True, slots=True)
class NoStarts(_OfLoader):
    """Epochs begin without a start of workers; `never`: without a new iterator at all."""

    _WORDS, _FACTS = "model.no_starts", ("each_ms",)

    each_ms: float
    never: bool = False

    def change(self, loader: Loader, model: StepModel) -> Loader:
        steps = math.inf if self.never else loader.epoch_steps
        return replace(loader, start_ms=0.0, after_start_ms=0.0, epoch_steps=steps)


@dataclass(frozen=True, slots=True)
class ReadyBatches(Edit):
    """Every batch lies ready when it is asked for: so much of the step is spent on waiting for it now."""

    _WORDS = "model.ready_batches"

    ms: float

    def apply(self, model: StepModel) -> StepModel:
        loader = model.loader
        if loader is None:
            return LessHost(self.ms, "data", is_sampled=False).apply(model)
        # Workers that are busy also hand over late: a batch that lies ready is taken as quickly as usual. None comes
        # for less than that: one that the training thread makes sooner is as good as ready.
        now_ms = loader.taking_ms + (0.0 if loader.workers else loader.batch_ms)
        taking_ms = min(now_ms, loader.handover_ms)
        ready = replace(loader, batch_ms=0.0, slow_share=0.0, slow_ms=0.0, taking_ms=taking_ms)
        return NoStarts(0.0, never=True).apply(replace(model, loader=ready))


# For the words of several.


def describe_edits(model: StepModel, edits: Iterable[Edit], is_most: bool = False) -> Message:
    """What they change, in one sentence; at most, where nobody knows what would be left."""
    parts = [edit.words(model) for edit in edits if getattr(edit, "ms", 1.0)]
    return message("model.method_most" if is_most else "model.method", step_ms=model.step_ms, changes=tuple(parts))
