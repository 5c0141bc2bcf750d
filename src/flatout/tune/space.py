"""All the settings that knobs allow."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from flatout.records.tune import Knob, Setting


def settings(knobs: Sequence[Knob]) -> Iterator[Setting]:
    """Every one of them. Numbers go upwards, so that what fits is seen before what may not."""
    values = [sorted(knob.values) if knob.is_ordered else list(knob.values) for knob in knobs]
    for chosen in itertools.product(*values):
        yield dict(zip((knob.name for knob in knobs), chosen, strict=True))


def count(knobs: Sequence[Knob]) -> int:
    return math.prod(len(knob.values) for knob in knobs)


def key(setting: Setting) -> str:
    """Equal for equal settings."""
    return json.dumps(setting, sort_keys=True, default=str)


def index(knob: Knob, value: Any) -> int:
    return ladder(knob).index(value)


def ladder(knob: Knob) -> list[Any]:
    """The values in the order in which neighbours are alike."""
    return sorted(knob.values) if knob.is_ordered else list(knob.values)
