"""What a remedy is like: what an experiment has to know of it to plan, size and judge its trials.

Each remedy says so in its own file, as `TRAITS = Traits(...)`; nobody else keeps a table of remedies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..records.message import Message


class Bottleneck(Enum):
    """What of a training a remedy acts on."""

    LOADING = "loading"  # batches come sooner
    TRANSFER = "transfer"  # copies to the device
    LAUNCHING = "launching"  # kernels are launched with less work of the host
    DEVICE = "device"  # the kernels themselves
    GRAPH = "graph"  # launching and kernels both: the model is compiled
    BATCH = "batch"  # the work of one step
    HOST = "host"  # work of the host beside launching
    SYNC = "sync"  # the host waits for the device
    PAUSES = "pauses"  # evaluations, checkpoints and logging
    MEMORY = "memory"


class Pauses(Enum):
    """When the pauses come that a remedy gains in; a trial has to see some of them."""

    NONE = "none"
    AT_EVENTS = "at events"  # evaluations, checkpoints: the finding tells how often
    BETWEEN_EPOCHS = "between epochs"


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Steps until it has begun. Where steps are slow it may take fewer of them, between these two step times."""

    steps: int = 0
    slow_steps: int | None = None
    quick_s: float = 0.1
    slow_s: float = 0.33

    def at(self, step_s: float) -> int:
        if self.slow_steps is None:
            return self.steps
        share = min(1.0, max(0.0, (step_s - self.quick_s) / (self.slow_s - self.quick_s)))
        return round(self.steps + share * (self.slow_steps - self.steps))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the remedy tells, under `key`, once there was something to act on; `missing` where there never was."""

    key: str
    missing: Message


@dataclass(frozen=True, slots=True)
class SelfTuning:
    """With `value` it finds its number while it runs. By hand it is doubled as long as that helps, up to `most`."""

    value: Any
    most: int


@dataclass(frozen=True, slots=True)
class Knob:
    """For `flatout tune`: what people call it, the setting of a training that it is, and the values to try by itself.

    `auto` is told whether it is the only knob. `value_of` makes the remedy's value of the knob's name and number.
    """

    aliases: tuple[str, ...]
    setting: str
    auto: Callable[[bool], tuple[int, ...]]
    value_of: Callable[[str, Any], Any] = lambda name, value: value


@dataclass(frozen=True, slots=True)
class Traits:
    acts_on: Bottleneck
    # It has no part in a training on batches that are on the device already.
    feeds_batches: bool = False
    pauses: Pauses = Pauses.NONE
    # It can be switched on and off in mid-training: it begins within a few steps and leaves nothing behind.
    is_switchable: bool = False
    # It can let everything pass for a while, in a process that has it.
    can_rest: bool = False
    # What it recorded or compiled goes on as it was, whatever else is switched.
    records_operations: bool = False
    # Seconds that it compiles before it begins.
    compiles_s: float = 0.0
    warm_up: WarmUp = WarmUp()
    # It keeps what comes again, and so begins with the second epoch.
    begins_with_second_epoch: bool = False
    # What it rounds numbers by, as a share of them; 0.0 where that is no more than float32 does.
    rounding: float = 0.0
    # Remedies that hardly help without it, and it without them: they are tried together.
    pairs_with: tuple[str, ...] = ()
    # Remedies without one of which it hardly helps, while they do without it: it is tried with the first that is there.
    builds_on: tuple[str, ...] = ()
    evidence: Evidence | None = None
    self_tuning: SelfTuning | None = None
    knob: Knob | None = None

    @property
    def gains_in_pauses(self) -> bool:
        return self.pauses is not Pauses.NONE
