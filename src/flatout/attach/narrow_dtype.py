"""Which narrower dtype would hold what is copied to the device without loss, judged by a few of its values."""

from __future__ import annotations

import math
import struct
from itertools import pairwise
from typing import Any

# Values looked at: runs of neighbours, spread over the tensor.
_RUNS, _RUN = 8, 96
# Values of 8 bits, shifted and scaled, lie on this many steps at most; fewer different ones than this tell nothing.
_STEPS, _TELLING = 255, 16
# How far rounding may move a value off its step, in steps.
_OFF = 0.1
# Channels may have different shifts, so all of them together may span more.
_ALL_CHANNELS = 2.5
_MOST_CHANNELS = 4
_FLOATS = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_WHOLE = {"int64": 8, "int32": 4, "int16": 2}
# Looks at one line: all of the first ones, then ever fewer.
_ALWAYS = 3
_MOST_KINDS = 16

Type = tuple[str, int]


class DtypeFit:
    """What was seen at one line: for every kind of tensor copied there, the widest of the narrower types."""

    def __init__(self) -> None:
        # Of all copies looked at, also of those that told nothing.
        self.looks = self.bytes = 0
        self.next_look = 1
        # By dtype and the shape of a sample, as several tensors may take turns on one line.
        self.kinds: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}

    def look(self, torch: Any, tensor: Any, count: int) -> bool:
        """Look at the `count`-th copy made at the line. Returns whether anything is known of what is copied there."""
        size = tensor.numel() * tensor.element_size()
        self.looks += 1
        self.bytes += size
        # In turns odd and even: with two tensors a step both are seen.
        self.next_look = count + 1 if self.looks < _ALWAYS else 4 * count + 1 + (self.looks & 1)
        dtype = str(tensor.dtype).removeprefix("torch.")
        key = (dtype, tuple(tensor.shape[1:]))
        found = find_narrowest_dtype(torch, tensor)
        if found is None or (key not in self.kinds and len(self.kinds) == _MOST_KINDS):
            return bool(self.kinds)
        seen = self.kinds.setdefault(
            key, {"dtype": dtype, "itemsize": tensor.element_size(), "narrow": "", "narrow_itemsize": 0, "bytes": 0}
        )
        seen["bytes"] += size
        if found[1] > seen["narrow_itemsize"]:
            seen["narrow"], seen["narrow_itemsize"] = found
        return True


def find_narrowest_dtype(torch: Any, tensor: Any) -> Type | None:
    """The narrowest type that holds the values without loss, with its bytes; the tensor's own if it is that.

    None where nothing can be told: an unusual tensor, or one that holds the same value everywhere.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    size = _FLOATS.get(name) or _WHOLE.get(name)
    if type(tensor) is not torch.Tensor or tensor.requires_grad or not tensor.is_cpu or size is None:
        return None
    runs = _runs(torch, tensor)
    values = [value for run in runs for value in run]
    if len(set(values)) < 2:
        return None
    if name in _WHOLE:
        found = _fit_integers(min(values), max(values))
    else:
        found = _fit_floats(values, runs)
        if found is None and name == "float64":
            # Nothing that is trained in float32 needs more.
            found = ("float32", 4)
    return found if found is not None and found[1] < size else (name, size)


def _runs(torch: Any, tensor: Any) -> list[list[Any]]:
    """Runs of neighbouring values of one channel each; none where that would take a copy of the whole tensor."""
    tensor = tensor.detach()
    if tensor.is_contiguous():
        channels = int(tensor.shape[-1]) if tensor.dim() > 2 else 1
        flat = tensor.view(-1)
    elif tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        channels = int(tensor.shape[1])
        flat = tensor.permute(0, 2, 3, 1).view(-1)
    else:
        return []
    channels = channels if 1 <= channels <= _MOST_CHANNELS else 1
    count = _RUNS // channels
    # A run begins with the first channel.
    apart = flat.numel() // count // channels * channels
    if apart < _RUN * channels:
        return []
    rows = flat[: count * apart].view(count, apart)[:, : _RUN * channels].tolist()
    return [row[channel::channels] for row in rows for channel in range(channels)]


def _fit_integers(low: int, high: int) -> Type | None:
    if low >= 0 and high <= 255:
        return ("bool", 1) if high <= 1 else ("uint8", 1)
    if low >= -128 and high <= 127:
        return "int8", 1
    # A few values do not show the largest there is, so no type in between is promised.
    return ("int32", 4) if low >= -(2**31) and high < 2**31 else None


def _fit_floats(values: list[float], runs: list[list[float]]) -> Type | None:
    low, high = min(values), max(values)
    if not all(math.isfinite(value) for value in values):
        return None
    if all(value.is_integer() for value in values) and low >= -128 and high <= 255:
        found = _fit_integers(int(low), int(high))
        if found is not None and found[1] == 1:
            return found
    if low >= 0 and high <= 1 and all(abs(255 * value - round(255 * value)) < 2e-3 for value in values):
        return "uint8", 1
    if _on_steps(runs, high - low):
        return "uint8", 1
    return ("float16", 2) if _fits_half(values) else None


def _on_steps(runs: list[list[float]], reach: float) -> bool:
    """Do the values lie on at most 256 evenly spaced levels, as 8 bits do after a mean and a deviation were applied?"""
    steps = []
    for run in runs:
        levels = sorted(set(run))
        if len(levels) < _TELLING:
            continue  # a flat place: any values would lie on a few levels
        step = min(b - a for a, b in pairwise(levels))
        places = [(level - levels[0]) / step for level in levels]
        if places[-1] > _STEPS + 0.5 or any(abs(place - round(place)) > _OFF for place in places):
            return False
        steps.append(step)
    return len(steps) >= 2 and reach / min(steps) <= _ALL_CHANNELS * _STEPS


def _fits_half(values: list[float]) -> bool:
    form = f"{len(values)}e"
    try:
        return struct.unpack(form, struct.pack(form, *values)) == tuple(values)
    except (OverflowError, struct.error):
        return False
