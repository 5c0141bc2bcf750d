"""The ledger of a steady step: every millisecond of the training thread by line and nature."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from flatout.records.report import Location

# What the thread did: Python, native code, or waiting for a file, a pipe or socket, a lock, a child process, a timer.
Nature = Literal["unknown", "python", "native", "file", "pipe", "lock", "process", "sleep"]
NATURES: tuple[Nature, ...] = get_args(Nature)
# Whose work a look fell on, as the recording has it.
IN_MODULE, ON_GRADIENTS = 1, 2
WAITING: frozenset[Nature] = frozenset(("file", "pipe", "lock", "process", "sleep"))

# What a part of the step is spent on. "model" is computing within modules and on the autograd graph, with its backward;
# "python" and "native" are other work of the script, "waiting" its waits for anything but batches and the device. In
# "not running" the thread could have run, but others had the processors.
Part = Literal[
    "model",
    "optimizer",
    "batch",
    "copy",
    "device",
    "pause",
    "gc",
    "python",
    "native",
    "waiting",
    "not running",
    "not measured",
]
PARTS: tuple[Part, ...] = get_args(Part)
# Other work of the script in the step.
SCRIPT: frozenset[Part] = frozenset(("python", "native"))


# Standard deviations below the mean that leave 5% out.
_ONE_SIDED = 1.645


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Time of a mean steady step at one line: `share` (0..1) of the step, in one phase and of one nature."""

    location: Location
    function: str
    phase: str
    nature: Nature
    # Within a call of a module: the model's own computing.
    in_module: bool
    ms: float
    share: float
    # How often it was seen there.
    looks: float = 0.0
    part: Part = "not measured"
    # In a function of torch's that clips, scales, averages or applies gradients.
    on_gradients: bool = False


@dataclass(frozen=True, slots=True)
class CallPath:
    """Time of a mean steady step in one phase, by the lines of the script on the stack, the outermost first.

    The last is the line of a `LedgerEntry`, the others are the calls that lead to it.
    """

    lines: tuple[Location, ...]
    # The function that each of them is in.
    functions: tuple[str, ...]
    phase: str
    ms: float
    looks: float


@dataclass(frozen=True, slots=True)
class Ledger:
    """The entries, the dearest first, and the share of the step of each part; the shares add up to 1."""

    entries: tuple[LedgerEntry, ...] = ()
    shares: dict[Part, float] = field(default_factory=dict)

    def share_of(self, *parts: Part) -> float:
        return sum(self.shares.get(part, 0.0) for part in parts)

    def least_share_of(self, *parts: Part) -> float:
        """What their share is at least, at 95%, by how many looks at the phases they are in fell on them."""
        theirs = [entry for entry in self.entries if entry.part in parts]
        phases = {entry.phase for entry in theirs}
        looks = sum(entry.looks for entry in theirs)
        seen = sum(entry.share for entry in theirs)
        if looks <= 0:
            return self.share_of(*parts)
        every = sum(entry.looks for entry in self.entries if entry.phase in phases)
        return self.share_of(*parts) - seen * (1 - _least_part(looks, every) * every / looks)


def _least_part(looks: float, every: float) -> float:
    """The lower bound of a part of which so many looks out of every look fell on it (Wilson)."""
    part, spread = looks / every, _ONE_SIDED**2 / every
    return (part + spread / 2 - _ONE_SIDED * math.sqrt(part * (1 - part) / every + (spread / every) / 4)) / (1 + spread)
