"""Makes the trials that a strategy asks for, keeps them, and ends when the strategy, the time or the user does."""

from __future__ import annotations

import fcntl
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from flatout.errors import FlatoutError
from flatout.experiment.tuning.strategies import Strategy, setting_key
from flatout.records.message import NOTHING, Message, message
from flatout.records.report import RemedyState
from flatout.records.trial import Trial, describe_ending, is_out_of_memory
from flatout.records.tune import Ask, Knob, Point, Setting
from flatout.remedies.loader.arguments import ARGUMENT_SET, LEFT_ALONE
from flatout.words.codec import decode, encode

Measure = Callable[[Ask], Trial]
# Makes several trials; each comes when it is done, with its number. The order is free.
Spread = Callable[[Measure, Sequence[Ask]], Iterator[tuple[int, Trial]]]


def one_by_one(measure: Measure, asks: Sequence[Ask]) -> Iterator[tuple[int, Trial]]:
    for number, ask in enumerate(asks):
        yield number, measure(ask)


class OutOfTime(Exception):
    """The budget is spent."""


@dataclass
class SettingSearch:
    """`clock` and `until_s`, its reading at which no further trial begins; `tell` is told of points, new or not."""

    measure: Measure
    journal: Journal
    fits: MemoryModel
    spread: Spread = one_by_one
    tell: Callable[[Point, bool], None] = lambda point, is_new: None
    clock: Callable[[], float] = lambda: 0.0
    until_s: float = float("inf")
    refusal: Callable[[Ask], Message | None] = lambda ask: None
    # All that was seen, in order.
    points: list[Point] = field(default_factory=list)
    made: int = 0

    def run(self, strategy: Strategy) -> None:
        """To its end. Raises OutOfTime; what was found until then is in `points`."""
        try:
            asks = next(strategy)
            while True:
                asks = strategy.send(self.ask(asks))
        except StopIteration:
            pass
        finally:
            strategy.close()

    def ask(self, asks: Sequence[Ask]) -> list[Point]:
        """Their points, in the same order. What the trials so far rule out is not tried."""
        found: dict[int, Point] = {}
        open_ones = list(enumerate(asks))
        while open_ones:
            # Trials that were made before come first, in one go: they may rule others out.
            number, ask = open_ones[0]
            settled = self._settled(ask)
            if settled is not None:
                open_ones.pop(0)
                found[number] = settled
                continue
            batch = self._batch(open_ones)
            for place, trial in self._tried([ask for _, ask in batch]):
                number, ask = batch[place]
                found[number] = self._note(read_point(ask, trial), is_new=True)
            done = {number for number, _ in batch}
            open_ones = [(number, ask) for number, ask in open_ones if number not in done]
        return [found[number] for number in range(len(asks))]

    def _batch(self, open_ones: Sequence[tuple[int, Ask]]) -> list[tuple[int, Ask]]:
        """One by one where trials may rule others out, else all that need a trial."""
        if self.spread is one_by_one:
            return [open_ones[0]]
        return [(at, ask) for at, ask in open_ones if not self._spared(ask) and self.journal.find(ask) is None]

    def _settled(self, ask: Ask) -> Point | None:
        """Without a trial: refused, ruled out, or made before."""
        if why := self._spared(ask):
            return self._note(Point(dict(ask.setting), ask.steps, ask.repeat, why=why, tried=False), is_new=True)
        trial = self.journal.find(ask)
        return None if trial is None else self._note(read_point(ask, trial), is_new=False)

    def _spared(self, ask: Ask) -> Message | None:
        return self.refusal(ask) or self.fits.obstacle(ask.setting)

    def _tried(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Trial]]:
        if self.clock() >= self.until_s:
            raise OutOfTime
        for place, trial in self.spread(self.measure, asks):
            self.journal.add(asks[place], trial)
            self.made += 1
            yield place, trial

    def _note(self, seen: Point, is_new: bool) -> Point:
        self.fits.learn(seen)
        self.points.append(seen)
        self.tell(seen, is_new)
        return seen


def longest(points: Sequence[Point]) -> list[Point]:
    """One a setting: its longest trial, and of several of that length their mean rate."""
    by_setting: dict[str, list[Point]] = {}
    for point in points:
        by_setting.setdefault(setting_key(point.setting), []).append(point)
    return [_joined(several) for several in by_setting.values()]


def finalists(points: Sequence[Point], steps: int) -> tuple[list[Point], bool]:
    """Those to choose from, and whether they are rough: shorter trials where fewer than two have `steps`."""
    usable = [point for point in points if point.is_usable]
    full = [point for point in usable if point.steps == steps]
    if len(full) < 2 and any(point.setting for point in usable):
        return usable, True
    return [*full, *(point for point in usable if not point.setting and point not in full)], False


def _joined(points: Sequence[Point]) -> Point:
    usable = [point for point in points if point.is_usable]
    if not usable:
        return points[-1]
    steps = max(point.steps for point in usable)
    # A setting that failed once at its full length cannot be relied on.
    failed = next((point for point in points if point.why and point.tried and point.steps >= steps), None)
    if failed is not None:
        return failed
    by_repeat = {point.repeat: point for point in usable if point.steps == steps}
    long = list(by_repeat.values())
    return replace(
        by_repeat[min(by_repeat)],
        samples_per_s=_mean([point.samples_per_s for point in long]),
        steps_per_s=_mean([point.steps_per_s for point in long]),
        memory_bytes=max((point.memory_bytes for point in long if point.memory_bytes is not None), default=None),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


# Which batch sizes will not fit, predicted: peak memory grows linearly with the batch.

# Of the device: fragments and other processes take the rest.
USABLE = 0.92


class MemoryModel:
    """Learns from every point, for each choice of the other knobs apart."""

    def __init__(self, knobs: Sequence[Knob], limit_bytes: float | None) -> None:
        found = [knob.name for knob in knobs if knob.meaning == "batch_size" and knob.is_ordered]
        self._batch = found[0] if len(found) == 1 else None
        self._limit_bytes = limit_bytes
        self._memory: dict[str, dict[float, float]] = {}
        self._too_large: dict[str, float] = {}

    def learn(self, point: Point) -> None:
        if self._batch is None or self._batch not in point.setting:
            return
        others, size = self._others(point.setting), float(point.setting[self._batch])
        if is_out_of_memory(point.why):
            self._too_large[others] = min(size, self._too_large.get(others, size))
        elif not point.why and point.memory_bytes is not None:
            seen = self._memory.setdefault(others, {})
            seen[size] = max(point.memory_bytes, seen.get(size, 0.0))

    def obstacle(self, setting: Setting) -> Message | None:
        """Why a trial of it can be spared, if it can."""
        if self._batch is None or self._batch not in setting:
            return None
        others, size = self._others(setting), float(setting[self._batch])
        too_large = self._too_large.get(others)
        if too_large is not None and size >= too_large:
            return message("tune.out_of_memory_at", size=too_large)
        needed = self.predicted_bytes(setting)
        if needed is None or self._limit_bytes is None or needed <= self._limit_bytes:
            return None
        return message("tune.would_not_fit", needed_gib=needed / 2**30, limit_gib=self._limit_bytes / 2**30)

    def predicted_bytes(self, setting: Setting) -> float | None:
        """By the line through the smallest and the largest that were measured; None with fewer than two."""
        assert self._batch is not None
        seen = self._memory.get(self._others(setting), {})
        size = float(setting[self._batch])
        if len(seen) < 2 or size <= max(seen):
            return None
        small, large = min(seen), max(seen)
        slope = max(0.0, (seen[large] - seen[small]) / (large - small))
        return seen[large] + slope * (size - large)

    def _others(self, setting: Setting) -> str:
        return setting_key({name: value for name, value in setting.items() if name != self._batch})


# From a trial to a point: how fast it was and how sure that is, what it needed, whether the setting was in force.

_BLOCKS = 8
# The host's memory is read every five seconds: a shorter trial may end on what its processes began with.
_LEAST_HOST_S = 10.0
# How many times as long as the next longest block makes a pause.
_PAUSE = 3.0


def read_point(ask: Ask, trial: Trial) -> Point:
    samples, error = rate(trial.step_s, trial.samples)
    steps, error_of_steps = rate(trial.step_s, [1.0] * len(trial.step_s))
    device = trial.device_peak_bytes
    host = trial.host_peak_bytes if trial.wall_s >= _LEAST_HOST_S else None
    return Point(
        setting=dict(ask.setting),
        steps=ask.steps,
        repeat=ask.repeat,
        why=_obstacle(trial),
        samples_per_s=samples,
        steps_per_s=steps,
        error=_with_lost(error if samples is not None else error_of_steps, trial.lost_share),
        memory_bytes=device if device is not None else host,
        is_device_memory=device is not None,
        metric=trial.metric,
        wall_s=trial.wall_s,
    )


def _with_lost(error: float | None, lost_share: float) -> float | None:
    """Where others disturbed the trial: any part of what they took may have made its steps longer."""
    return math.hypot(error or 0.0, lost_share / math.sqrt(12)) if lost_share else error


def rate(step_s: Sequence[float], amounts: Sequence[float]) -> tuple[float | None, float | None]:
    """Amount a second over all steps, and its relative error by leaving out one block of steps after another.

    Not a median: workers hand out batches in bursts, and most steps would tell of no wait at all. One pause that is
    far longer than any other block is left out; it is an evaluation, or the machine's. None where nothing was counted.
    """
    if len(amounts) != len(step_s) or not sum(step_s) or not sum(amounts):
        return None, None
    blocks = [(sum(amounts[block]), sum(step_s[block])) for block in _blocks(len(step_s))]
    blocks = _without_a_pause(blocks)
    whole = _ratio(blocks)
    if len(blocks) < 3:
        return whole, None
    without = [_ratio(blocks[:at] + blocks[at + 1 :]) for at in range(len(blocks))]
    middle = sum(without) / len(without)
    spread = sum((ratio - middle) ** 2 for ratio in without) * (len(without) - 1) / len(without)
    return whole, math.sqrt(spread) / whole


def _without_a_pause(blocks: list[tuple[float, float]]) -> list[tuple[float, float]]:
    by_time = sorted(blocks, key=lambda block: block[1])
    if len(blocks) < _BLOCKS or by_time[-1][1] <= _PAUSE * by_time[-2][1]:
        return blocks
    return [block for block in blocks if block is not by_time[-1]]


def _ratio(blocks: Sequence[tuple[float, float]]) -> float:
    return sum(amount for amount, _ in blocks) / sum(seconds for _, seconds in blocks)


def _blocks(steps: int) -> list[slice]:
    count = max(1, min(_BLOCKS, steps // 2))
    edges = [steps * n // count for n in range(count + 1)]
    return [slice(begin, end) for begin, end in itertools.pairwise(edges) if end > begin]


def _obstacle(trial: Trial) -> Message:
    """Why the trial is no measurement of its setting; empty if it is."""
    if not trial.ended_well:
        return describe_ending(trial)
    return next((why for state in trial.states if (why := _not_in_force(state)) is not None), NOTHING)


def _not_in_force(state: RemedyState) -> Message | None:
    if state.state == "reverted":
        return message("tune.undone", remedy=state.id, step=state.step, why=state.why)
    if state.state != "applied":
        return message("tune.not_applied", remedy=state.id, why=state.why)
    told = [fact for fact in state.live.values() if isinstance(fact, Message)]
    alone = [fact.args["why"] for fact in told if fact.id == LEFT_ALONE]
    # A second loader, as an evaluation's, may well be left alone.
    changed = any(fact.id in ARGUMENT_SET for fact in told)
    return message("tune.left_alone", remedy=state.id, why=alone[0]) if alone and not changed else None


# Finished trials, one JSON line each. A search is a function of what its trials came to, so one that was killed is made
# again from them and comes to the same next question.

FILE = "trials.jsonl"


class Journal:
    """Use as a context manager; two searches never write to one file. `limit_s` is what a trial may take now."""

    def __init__(self, folder: Path, limit_s: float = 0.0) -> None:
        self._path = folder / FILE
        self._limit_s = limit_s
        self._file: IO[bytes] | None = None
        self._known: dict[str, Trial] = {}

    def __enter__(self) -> Journal:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a+b")
        except OSError as error:
            words = f"{str(self._path.parent)!r} cannot be written: {error.strerror or error}; choose with --out"
            raise FlatoutError(words) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise FlatoutError(f"another search is writing to {self._path}: wait for it, or change a knob") from None
        self._read()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._file is not None
        self._file.close()

    def __len__(self) -> int:
        return len(self._known)

    @property
    def trials(self) -> tuple[Trial, ...]:
        return tuple(self._known.values())

    def find(self, ask: Ask) -> Trial | None:
        """None also where it ran out of time, and may take longer now."""
        trial = self._known.get(_name(ask))
        is_open = trial is not None and trial.ending == "out of time" and trial.wall_s < self._limit_s
        return None if is_open else trial

    def add(self, ask: Ask, trial: Trial) -> None:
        assert self._file is not None
        line = {
            "setting": dict(ask.setting),
            "steps": ask.steps,
            "repeat": ask.repeat,
            "trial": encode(trial, only_finite=False),
        }
        self._file.write(json.dumps(line, default=str).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._known[_name(ask)] = trial

    def clear(self) -> None:
        """Begin anew."""
        assert self._file is not None
        self._file.truncate(0)
        self._known.clear()

    def _read(self) -> None:
        """Whole lines only: what a killed search was just writing is cut off."""
        assert self._file is not None
        self._file.seek(0)
        whole = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            try:
                value = json.loads(line)
                ask = Ask(value["setting"], value["steps"], value["repeat"])
                self._known[_name(ask)] = decode(Trial, value["trial"], strict=False)
            except (ValueError, KeyError, TypeError):
                continue  # a line that was damaged is a trial to make again
        self._file.truncate(whole)


def _name(ask: Ask) -> str:
    return f"{setting_key(ask.setting)} {ask.steps} {ask.repeat}"
