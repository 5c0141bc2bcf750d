"""One trial: the user's script run for a while under a profile, and what came of it.

A trial that did not end well is a result like any other. `None` means "not measured".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from flatout.records.machine import MachineUse
from flatout.records.message import NOTHING, Message, message
from flatout.records.report import RemedyState

# "stopped" from outside after enough steps, "finished" by itself before; all others are failures.
Ending = Literal["stopped", "finished", "crashed", "out of memory", "hung", "out of time", "not finite", "not trained"]
WELL: tuple[Ending, ...] = ("stopped", "finished")


@dataclass(frozen=True, slots=True)
class Trial:
    """`arm` is what it stands for: "as it is", a remedy's id, "all"; `remedies` what was asked for, by id."""

    arm: str
    remedies: dict[str, Any]
    ending: Ending
    why: Message = NOTHING
    # Of the steps after warm-up, in their order.
    step_s: tuple[float, ...] = ()
    samples: tuple[float, ...] = ()
    # What of each step went into evaluations and checkpoints; empty where that is not known.
    pause_s: tuple[float, ...] = ()
    # Of every backward pass since the first step, None where one could not be read.
    losses: tuple[float | None, ...] = ()
    # A digest of the trained weights after `steps`.
    weights: str | None = None
    states: tuple[RemedyState, ...] = ()
    device_peak_bytes: int | None = None
    host_peak_bytes: int | None = None
    # The user's own metric, as the script printed it last; and every time, in that order.
    metric: float | None = None
    metrics: tuple[float, ...] = ()
    # Files the script wrote, by its own names; they lie in the trial's scratch folder.
    written: tuple[str, ...] = ()
    # Programs it started whose files went where they always go.
    uncontained: tuple[str, ...] = ()
    wall_s: float = 0.0
    # Where its recording is.
    run: str = ""
    # What else was changed: words of the command line or keys of a config file, by knob.
    knobs: dict[str, Any] = field(default_factory=dict)
    # Optimizer steps since the first, when its weights were digested: at the latest when it was stopped.
    steps: int | None = None
    # After how many steps its long ones come again, where other trials of the script say so: set by those who compare.
    period: int | None = None
    # Who had the processors meanwhile; None where that was not measured.
    machine: MachineUse | None = None
    # It was disturbed when it was made first, and was made again.
    made_again: bool = False

    @property
    def lost_share(self) -> float:
        """What others took of its time, where it was so much that its speed cannot be relied on; else 0."""
        return self.machine.lost_share if self.machine is not None and self.machine.disturbed else 0.0

    @property
    def is_disturbed(self) -> bool:
        return self.machine is not None and self.machine.disturbed

    @property
    def ended_well(self) -> bool:
        return self.ending in WELL and bool(self.step_s)


# Each ending as a fact that a person will read.
ENDINGS: dict[Ending, Message] = {
    "stopped": message("ending.stopped"),
    "finished": message("ending.finished"),
    "crashed": message("ending.crashed"),
    "out of memory": message("ending.out_of_memory"),
    "hung": message("ending.hung"),
    "out of time": message("ending.out_of_time"),
    "not finite": message("ending.not_finite"),
    "not trained": message("ending.not_trained"),
}


def describe_ending(trial: Trial) -> Message:
    ending = ENDINGS[trial.ending]
    return message("trial.ended", ending=ending, why=trial.why) if trial.why else ending


def is_out_of_memory(why: Message) -> bool:
    """Whether this describes a trial that ran out of memory."""
    memory = ENDINGS["out of memory"]
    return why == memory or why.args.get("ending") == memory
