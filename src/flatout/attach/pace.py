"""How closely steps are looked at: of those so short, or so many, that looking would show, only some."""

from __future__ import annotations

_STEPS_APART = 1024  # at least this many steps have a record of their own
_SHORT_STEP_S = 0.001
_LOOKED_AT_ONE_IN = 16
# On a device a step has more boundaries, and waits and samples of its own: steps are looked at as often as this part of
# their time allows (but one in so many always), after so many that all are.
_SHORT_ON_DEVICE_S = 0.02
_BUDGET = 0.004
_ON_DEVICE_ONE_IN = 64
_LOOKED_AT_FIRST = 128
# From then on a record holds twice as many steps for each doubling: a week of 2 ms steps stays under a gigabyte.
RECORDS_PER_LEVEL = 1 << 19


def rest_after(index: int, step_s: float, looking_s: float, on_device: bool) -> int:
    """Steps to count only, after each that is looked at; `looking_s` is what looking at one costs."""
    if on_device:
        if index < _LOOKED_AT_FIRST or step_s >= _SHORT_ON_DEVICE_S:
            return 0
        return min(_ON_DEVICE_ONE_IN - 1, int(looking_s / (_BUDGET * max(step_s, 1e-9))))
    return _LOOKED_AT_ONE_IN - 1 if index >= _STEPS_APART and step_s < _SHORT_STEP_S else 0


def steps_per_record(index: int, step_s: float, on_device: bool) -> int:
    if index < _STEPS_APART:
        return 1
    share = 1 << max(0, (index // RECORDS_PER_LEVEL).bit_length() - 1)
    return share * (_LOOKED_AT_ONE_IN if step_s < _SHORT_STEP_S and not on_device else 1)
