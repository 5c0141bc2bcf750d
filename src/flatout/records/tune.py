"""A search over knobs: what may be turned, what was measured, and what came of it.

`None` means "not measured". A setting gives each knob one of its values; the empty setting is the script as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flatout.records.message import NOTHING, Message

SCHEMA = 1

# A remedy of ours, words of the script's command line, or a key of a config file that these name.
Kind = Literal["remedy", "flag", "config"]
Setting = Mapping[str, Any]
Goal = Literal["samples/s", "metric", "memory"]


@dataclass(frozen=True, slots=True)
class Knob:
    """`name` is how the user wrote it, `target` what it turns: a remedy's id, a flag, or a key with dots."""

    name: str
    kind: Kind
    target: str
    values: tuple[Any, ...]
    # What turning it can do to the result: "lossless", "numeric" or "training".
    safety: str
    # The config file, for a key in it.
    file: str = ""
    # What it means to a training where that is certain: "num_workers", "batch_size" …
    meaning: str = ""

    @property
    def is_ordered(self) -> bool:
        """Whether its values are numbers, so that one lies between others."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)


@dataclass(frozen=True, slots=True)
class Ask:
    """A trial that the search wants. `repeat` tells trials of one setting and length apart."""

    setting: Setting
    steps: int
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Point:
    """A setting and what its trial of `steps` steps came to. `why` says why it cannot be used; empty if it can."""

    setting: Setting
    steps: int
    repeat: int = 0
    why: Message = NOTHING
    samples_per_s: float | None = None
    steps_per_s: float | None = None
    # Relative standard error of the rate, from its spread between blocks of steps.
    error: float | None = None
    # Most that was in use at any time: of the device where there is one, else of the host.
    memory_bytes: float | None = None
    is_device_memory: bool = False
    metric: float | None = None
    wall_s: float = 0.0
    # Whether a trial was made; else `why` says what spared it.
    tried: bool = True

    @property
    def is_usable(self) -> bool:
        return not self.why


@dataclass(frozen=True, slots=True)
class Metric:
    """The user's own figure, as a pattern finds it in what the script prints."""

    pattern: str
    higher_is_better: bool

    @property
    def in_decibel(self) -> bool:
        words = self.pattern.lower()
        return "psnr" in words or "snr" in words or "db" in words


@dataclass(frozen=True, slots=True)
class Pick:
    """A point of the front and the way to use it. `point` is None where none will do; `why` says either."""

    name: str
    point: Point | None
    why: Message
    # Where its profile and config copies are, and what to type.
    folder: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a search came to."""

    command: tuple[str, ...]
    knobs: tuple[Knob, ...]
    method: Message
    goal: Goal
    metric: Metric | None
    constraints: tuple[str, ...]
    # The script as it is; None where it could not be measured.
    baseline: Point | None
    # One a setting: its longest trial.
    points: tuple[Point, ...]
    front: tuple[Point, ...]
    chosen: Pick
    presets: tuple[Pick, ...]
    # "samples/s", or "steps/s" where samples could not be counted.
    rate: str
    # "GPU memory" or "host memory".
    memory: str
    trials: int
    settings: int
    wall_s: float
    ended: Message
    folder: str
    notices: tuple[Message, ...] = ()
    # Trials that others disturbed; None without any.
    disturbed: Message | None = None
    schema: int = field(default=SCHEMA)

    def speed(self, point: Point) -> float | None:
        return point.samples_per_s if self.rate == "samples/s" else point.steps_per_s


def describe_setting(setting: Setting) -> str:
    """`workers 8 · --window 7`; a knob's name without its file."""
    if not setting:
        return "as it is"
    return " · ".join(f"{str(name).rpartition(':')[2]} {_word(value)}" for name, value in setting.items())


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
