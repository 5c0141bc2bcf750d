"""The order of the samples to come, published by the process that draws it to all that read."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from .segment import MOST_WORTH, TABLE_AT, WORDS_PER_LINE, Field, Segment, Word

_HEAD_WORDS = 4
_MOST_CHANCE = 1 << 30


class Plan:
    """One published order, mapped. `chances` are of being drawn after its end, per sample."""

    def __init__(self, path: str, samples: int) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self._map = mmap.mmap(fd, 0)
        finally:
            os.close(fd)
        words = memoryview(self._map).cast("I")
        self.starts = words[_HEAD_WORDS : _HEAD_WORDS + samples + 1]
        self._taken = words[_HEAD_WORDS + samples + 1 : _HEAD_WORDS + 2 * samples + 1]
        self.chances = words[_HEAD_WORDS + 2 * samples + 1 : _HEAD_WORDS + 3 * samples + 1]
        self._places = words[_HEAD_WORDS + 3 * samples + 1 :]

    def next_place(self, index: int) -> int | None:
        """Where in the order the sample comes next, after the reading that is now counted."""
        taken = self._taken[index] + 1
        self._taken[index] = taken
        at = self.starts[index] + taken
        return self._places[at] if at < self.starts[index + 1] else None


class PlanWatch:
    """The newest plan of a segment, mapped when it is first asked for."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._number = 0
        self._plan: Plan | None = None

    def __call__(self) -> Plan | None:
        number = self._segment.words[Word.PLAN]
        if number != self._number:
            self._number = number
            self._plan = None
            # The next plan may have replaced it meanwhile.
            with contextlib.suppress(OSError, ValueError):
                self._plan = Plan(_path(self._segment, number), self._segment.samples)
        return self._plan


def publish(segment: Segment, order: Sequence[int], chances: Any = None) -> None:
    """Make `order` the plan from now on, and value by it what is already kept.

    `chances` are the weights by which the next plan will be drawn.
    """
    samples = segment.samples
    indices = np.asarray(order, np.int64)
    places = np.argsort(indices, kind="stable").astype(np.uint32)
    counts = np.bincount(indices, minlength=samples)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    scaled = np.zeros(samples, np.uint32)
    if chances is not None:
        weights = np.asarray(chances, np.float64)
        scaled = (weights / max(float(weights.max()), 1e-300) * _MOST_CHANCE).astype(np.uint32)
    number = segment.words[Word.PLAN] + 1
    head = np.array([1, samples, len(indices), 0], np.uint32)
    path = _path(segment, number)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        for part in (head, starts, np.zeros(samples, np.uint32), scaled, places):
            _write_all(fd, part.tobytes())
    finally:
        os.close(fd)
    lines = np.frombuffer(segment.words, np.int64)[TABLE_AT:].reshape(samples, WORDS_PER_LINE)
    lines[:, int(Field.WORTH)] = _worths(starts, places, scaled)
    segment.words[Word.PLAN] = number
    with contextlib.suppress(OSError):
        os.unlink(_path(segment, number - 1))


def _worths(starts: Any, places: Any, chances: Any) -> Any:
    """Of every sample: the sooner it comes, the more; of one that is not drawn, its chance."""
    drawn = starts[1:] > starts[:-1]
    first = np.zeros(len(chances), np.int64)
    first[drawn] = places[starts[:-1][drawn]]
    return np.where(drawn, MOST_WORTH - first, 1 + chances.astype(np.int64))


def _path(segment: Segment, number: int) -> str:
    return f"{segment.path}.plan{number}"


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
