"""A search over knobs from its first trial to its picks: how long trials are, which method, what was found."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flatout.diagnose.summary import summarise_run
from flatout.errors import FlatoutError
from flatout.experiment.calm import describe_disturbed
from flatout.experiment.tuning.objective import Objective, pareto_front
from flatout.experiment.tuning.on_ray import OnRay
from flatout.experiment.tuning.picks import NAMES, pick_best, pick_preset, write_pick
from flatout.experiment.tuning.search import (
    USABLE,
    Journal,
    MemoryModel,
    OutOfTime,
    SettingSearch,
    finalists,
    longest,
    one_by_one,
)
from flatout.experiment.tuning.strategies import Lengths, choose_method, count
from flatout.experiment.tuning.trials import SettingTrials
from flatout.records.atomic import write_atomic
from flatout.records.message import NOTHING, Message, message
from flatout.records.trial import is_out_of_memory
from flatout.records.tune import Ask, Pick, Point, Tuned, describe_setting
from flatout.report import tune as report
from flatout.report.text import duration
from flatout.store.run import StoredRun
from flatout.words import english

# Steps of a first look; of a full trial, as many as fill the window.
_FIRST_STEPS = 30
_WINDOW_S = 5.0
_FEWEST, _MOST = 30, 400
# From one trial of the script as it is to the next: beyond this the machine has changed its pace meanwhile.
_DRIFT = 0.1


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a search goes; None where that is ours to say. `say` is told of every point."""

    steps: int | None = None
    settings: int | None = None
    budget_s: float | None = None
    preset: str | None = None
    say: Callable[[str], None] = lambda words: None


class Tuning:
    """One search from its first trial to its picks."""

    def __init__(
        self, trials: SettingTrials, objective: Objective, journal: Journal, place: OnRay | None, extent: Extent
    ) -> None:
        self._trials = trials
        self._objective = objective
        self._journal = journal
        self._extent = extent
        self._known = len(journal)
        self._began_s = time.monotonic()
        self._width = 1 if place is None else place.width
        limits = [USABLE * size for size in (_device_bytes(),) if size is not None]
        limits += [size for size in (objective.most_memory_bytes,) if size is not None]
        until_s = float("inf") if extent.budget_s is None else self._began_s + extent.budget_s
        self._search = SettingSearch(
            measure=trials,
            journal=journal,
            fits=MemoryModel(trials.knobs, min(limits, default=None)),
            spread=one_by_one if place is None else place.spread,
            tell=self._tell,
            clock=time.monotonic,
            until_s=until_s,
            refusal=trials.refusal,
        )
        self._notices: list[Message] = []
        self._method: Message = NOTHING
        self.is_interrupted = False

    def to_the_end(self) -> Tuned:
        ended: Message = NOTHING
        lengths = Lengths.of(self._extent.steps or _FIRST_STEPS)
        try:
            if self._known:
                self._say(f"{self._known} trials of this search were made before and are not made again")
            first = self._first_look()
            lengths = self._lengths(first)
            chosen = choose_method(self._trials.knobs, self._objective, lengths, self._extent.settings, self._width)
            self._method = chosen.words
            names = ", ".join(knob.name for knob in self._trials.knobs)
            folder = os.path.relpath(self._trials.folder, self._trials.cwd)
            self._say(f"tuning {names}: {english(chosen.words)}; trials are kept in {folder}")
            as_it_is = [Ask({}, lengths.long)] if first.is_usable else []
            if self._objective.metric is not None:
                self._search.ask(as_it_is)  # quality is compared with it, however early the search ends
            self._search.run(chosen.strategy)
            # Beside the trials of the best, so that a machine that changes its pace misleads least.
            for last in self._search.ask(as_it_is):
                self._look_at_drift(first, last)
        except OutOfTime:
            ended = message("tune.budget_spent", budget=duration(self._extent.budget_s or 0.0))
        except KeyboardInterrupt:
            ended, self.is_interrupted = message("tune.interrupted"), True
        return self._concluded(lengths, ended)

    def _first_look(self) -> Point:
        """The script as it is, for the length of trials and for what cannot be measured here."""
        steps = Lengths.of(self._extent.steps).short if self._extent.steps else _FIRST_STEPS
        (point,) = self._search.ask([Ask({}, steps)])
        if is_out_of_memory(point.why):
            self._notices.append(message("tune.baseline_out_of_memory"))
        elif point.why:
            why = english(point.why)
            raise FlatoutError(f"the script as it is cannot be measured: {why}; see {self._trials.folder}")
        elif point.samples_per_s is None:
            self._objective = replace(self._objective, rate="steps/s")
            self._notices.append(message("tune.steps_decide"))
        self._search.measure = self._trials = replace(self._trials, own_workers=self._own_workers(Ask({}, steps)))
        return point

    def _own_workers(self, ask: Ask) -> int:
        """Of the script's own loader: what these have ready counts as warm-up."""
        trial = self._journal.find(ask)
        try:
            loaders = [] if trial is None else summarise_run(StoredRun(Path(trial.run))).workers
            return max((loader.workers for loader in loaders), default=0)
        except (OSError, ValueError, FlatoutError):
            return 0  # its recording is on another machine

    def _lengths(self, first: Point) -> Lengths:
        """As the user says; else as many steps as fill the window: quick ones are not judged by noise."""
        if self._extent.steps is not None or not first.steps_per_s:
            return Lengths.of(self._extent.steps or _FIRST_STEPS)
        return Lengths.of(max(_FEWEST, min(_MOST, round(_WINDOW_S * first.steps_per_s))))

    def _look_at_drift(self, first: Point, last: Point) -> None:
        before, after = self._objective.speed(first), self._objective.speed(last)
        if before and after and first.steps >= _FIRST_STEPS:
            share = abs(after / before - 1)
            if share > max(_DRIFT, 3 * math.hypot(first.error or 0.0, last.error or 0.0)):
                self._notices.append(message("tune.drift", share=share))

    def _tell(self, point: Point, is_new: bool) -> None:
        if is_new:
            told = english(point.why) if point.why else self._figures(point)
            self._say(f"{len(self._search.points):>3} {describe_setting(point.setting)}: {told}")

    def _figures(self, point: Point) -> str:
        speed = self._objective.speed(point)
        base = _find_baseline(self._search.points)
        before = None if base is None else self._objective.speed(base)
        gain = f" (×{speed / before:.2f})" if speed and before and point.setting else ""
        rate = f"{speed:.4g} {self._objective.rate}{gain}" if speed else f"no {self._objective.rate}"
        figure = "" if point.metric is None else f" · metric {point.metric:.6g}"
        return f"{rate}{figure} · {duration(time.monotonic() - self._began_s)} so far"

    def _say(self, words: str) -> None:
        self._extent.say(f"flatout: {words}\n")

    def _concluded(self, lengths: Lengths, ended: Message) -> Tuned:
        wanted, knobs = self._objective, self._trials.knobs
        points = longest(self._search.points)
        final, is_rough = finalists(points, lengths.long)
        if is_rough:
            self._notices.append(message("tune.short"))
        baseline = _find_baseline(points)
        if all(point.metric is None for point in final) and any(knob.safety == "training" for knob in knobs):
            self._notices.append(message("tune.no_quality"))
        if wanted.metric is not None and all(point.metric is None for point in final):
            self._notices.append(message("tune.metric_not_found", pattern=wanted.metric.pattern))
        presets = [pick_preset(name, final, knobs, wanted, baseline) for name in NAMES]
        picked = next((preset for preset in presets if preset.name == self._extent.preset), None)
        chosen = picked if picked is not None else pick_best(final, knobs, wanted, baseline)
        return self._written(
            Tuned(
                command=self._trials.command,
                knobs=knobs,
                method=self._method,
                goal=wanted.goal,
                metric=wanted.metric,
                constraints=tuple(limit.text for limit in wanted.constraints),
                baseline=baseline,
                points=tuple(replace(point, why=wanted.obstacle(point)) for point in points),
                front=tuple(pareto_front(final, wanted)),
                chosen=chosen,
                presets=tuple(presets),
                rate=wanted.rate,
                memory="GPU memory" if any(point.is_device_memory for point in points) else "host memory",
                trials=self._search.made + self._known,
                settings=count(knobs),
                wall_s=time.monotonic() - self._began_s,
                ended=ended,
                folder=os.path.relpath(self._trials.folder, self._trials.cwd),
                notices=tuple(self._notices),
                disturbed=describe_disturbed(self._journal.trials),
            )
        )

    def _written(self, tuned: Tuned) -> Tuned:
        def with_files(pick: Pick) -> Pick:
            figures = "" if pick.point is None else report.point_figures(tuned, pick.point)
            return write_pick(pick, self._trials, self._trials.folder / pick.name, figures)

        done = replace(tuned, chosen=with_files(tuned.chosen), presets=tuple(map(with_files, tuned.presets)))
        write_atomic(self._trials.folder / "result.json", json.dumps(report.to_json(done), indent=2) + "\n")
        return done


def _find_baseline(points: Sequence[Point]) -> Point | None:
    return next((point for point in points if not point.setting and point.is_usable), None)


def _device_bytes() -> float | None:
    """Memory of the smallest GPU that the script may use; None where there is none or it cannot be told."""
    try:
        import pynvml

        from flatout.telemetry.nvml import NvmlDevices

        devices = NvmlDevices(pynvml, os.environ.get("CUDA_VISIBLE_DEVICES"))
        sizes = [gpu.memory_total_bytes for gpu in devices.read(frozenset(), time.perf_counter).gpus]
        return min((size for size in sizes if size is not None), default=None)
    except Exception:  # a driver's library may raise anything; without it no size is ruled out beforehand
        return None
