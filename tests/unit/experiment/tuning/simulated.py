"""Trials of a training that is only a formula: speed, memory and quality as functions of a setting, with noise."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flatout.experiment.tuning.objective import Objective
from flatout.experiment.tuning.search import Journal, MemoryModel, SettingSearch
from flatout.experiment.tuning.strategies import Lengths, Strategy
from flatout.records.message import verbatim
from flatout.records.trial import Trial
from flatout.records.tune import Ask, Knob, Point

SPEED = Objective("samples/s", None)
LENGTHS = Lengths.of(60)


def knob(name: str, *values: Any, meaning: str = "", safety: str = "lossless") -> Knob:
    return Knob(name, "remedy", name, values, safety, meaning=meaning)


class Formula:
    """Counts the trials it is asked for. `memory` above `room` is a trial that went out of memory."""

    def __init__(
        self,
        speed: Callable[[Any], float],
        memory: Callable[[Any], float] | None = None,
        room: float = float("inf"),
        metric: Callable[[Any], float] | None = None,
        noise: float = 0.0,
        seed: int = 1,
    ) -> None:
        self.speed, self.memory, self.room, self.metric, self.noise = speed, memory, room, metric, noise
        self._random = random.Random(seed)
        self.asked: list[Ask] = []

    @property
    def steps(self) -> int:
        return sum(ask.steps for ask in self.asked)

    def __call__(self, ask: Ask) -> Trial:
        self.asked.append(ask)
        used = None if self.memory is None else int(self.memory(ask.setting))
        if used is not None and used > self.room:
            return Trial("x", {}, "out of memory", verbatim("no room"))
        speed = self.speed(ask.setting)
        times = tuple(max(1e-9, self._random.gauss(1, self.noise)) / speed for _ in range(ask.steps))
        metric = None if self.metric is None else self.metric(ask.setting)
        return Trial(
            "x",
            {},
            "stopped",
            step_s=times,
            samples=(1.0,) * ask.steps,
            device_peak_bytes=used,
            metric=metric,
            wall_s=1.0,
        )


def search(
    folder: Path, measure: Callable[[Ask], Trial], strategy: Strategy, fits: MemoryModel | None = None
) -> list[Point]:
    with Journal(folder) as journal:
        running = SettingSearch(measure, journal, fits or MemoryModel((), None))
        running.run(strategy)
        return running.points
