"""Look at a few samples before anything is kept: are they the same every time, how large, how long do they take?

Done in a forked child: a dataset that opens files or draws numbers on its first reading is as untouched afterwards as
if nobody had looked, and one that hangs is given up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...records.message import Message, message
from ..forked import ask_child
from ..reasons import error_text
from .cut import Cut, NoCut, Reader, find_cut
from .format import Payload, decode, encode
from .randomness import is_deterministic

LIMIT_S = 60.0
_SAMPLES = 4
_GETS = 5
_ROUNDS, _LONG_S = 3, 0.01
# Finding a sample, and looking whether it is whole and the dataset unchanged: measured on a Neoverse N1.
_REST_OF_A_HIT_S = 4e-6
# A sample must take this many times as long to load as to get.
WORTHWHILE = 1.5
# What takes less is nothing to wait for, and on a busy machine no more than a guess.
_SOON_S = 20e-6


@dataclass(frozen=True, slots=True)
class Probe:
    """What a few samples have shown. `refusal` is None where the dataset may be cached."""

    refusal: Message | None
    cut: Cut | None = None
    sample_bytes: float = 0.0
    load_s: float = 0.0
    get_s: float = 0.0  # what getting a sample out of the cache takes


def probe(dataset: Any, samples: int, limit_s: float = LIMIT_S) -> Probe:
    """Look at `_SAMPLES` samples evenly over the dataset, in a child process."""
    indices = sorted({round(at * (samples - 1) / max(1, _SAMPLES - 1)) for at in range(_SAMPLES)})
    try:
        found = ask_child(lambda: _look(dataset, indices), limit_s)
    except TimeoutError:
        return Probe(message("cache.look_late", limit_s=limit_s))
    return found if isinstance(found, Probe) else Probe(message("cache.look_died"))


def _look(dataset: Any, indices: Sequence[int]) -> Probe:
    try:
        verdict = is_deterministic(dataset, indices)
        if verdict.why_not is None:
            return _if_worth_it(_sized(dataset, indices, None), verdict.first_s)
        try:
            cut = find_cut(dataset, indices)
        except NoCut as reason:
            return Probe(message("cache.and", first=verdict.why_not, second=reason.why))
        return _sized(dataset, indices, cut)
    except Exception as error:
        return Probe(message("cache.look_failed", error=error_text(error)))


def _sized(dataset: Any, indices: Sequence[int], cut: Cut | None) -> Probe:
    reader = Reader(dataset, cut) if cut is not None else None
    took_s = math.inf
    for _ in range(_ROUNDS):
        began_s = time.perf_counter()
        samples = [dataset[index] if reader is None else reader.load(index)[0] for index in indices]
        took_s = min(took_s, time.perf_counter() - began_s)
        if took_s > _LONG_S:
            break  # what else the machine does at the moment does not count in that
    payloads = [encode(sample) for sample in samples]
    mean_bytes = sum(payload.nbytes for payload in payloads) / len(payloads)
    return Probe(None, cut, mean_bytes, took_s / len(samples), min(map(_get_s, payloads)))


def _get_s(payload: Payload) -> float:
    """As a hit does it, when all is warm."""
    data = memoryview(b"".join(payload.parts))
    took_s = []
    for _ in range(_GETS):
        began_s = time.perf_counter()
        decode(data, 0, payload.head_bytes, payload.layout_key)
        took_s.append(time.perf_counter() - began_s)
    return min(took_s) + _REST_OF_A_HIT_S


def _if_worth_it(found: Probe, first_s: float) -> Probe:
    """Not for samples that are loaded as quickly as they are copied, even when read for the first time from a disk."""
    least_s = max(found.load_s, first_s)
    if least_s >= max(WORTHWHILE * found.get_s, _SOON_S):
        return found
    return Probe(message("cache.nothing_to_gain", load_us=1e6 * least_s, get_us=1e6 * found.get_s))
