"""Points of the front by what a user can afford to lose: 0.1, 0.3 or 1.0 dB of quality, or a share of it.

Where no metric was measured, only knobs that cannot change what is learnt are turned, and that is said.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from flatout.experiment.tuning.objective import Objective
from flatout.experiment.tuning.strategies import setting_key
from flatout.experiment.tuning.trials import SettingTrials
from flatout.launch.profile import profile_toml
from flatout.records.atomic import write_atomic
from flatout.records.message import Message, message
from flatout.records.tune import Goal, Knob, Pick, Point, describe_setting
from flatout.words import english

NAMES = ("conservative", "balanced", "aggressive", "low-memory")
_DECIBEL = {"conservative": 0.1, "balanced": 0.3, "aggressive": 1.0, "low-memory": 0.3}
_SHARE = {"conservative": 0.005, "balanced": 0.015, "aggressive": 0.05, "low-memory": 0.015}
_CLASSES = {
    "conservative": ("lossless",),
    "balanced": ("lossless", "numeric"),
    "aggressive": ("lossless", "numeric"),
    "low-memory": ("lossless", "numeric"),
}
_REASONS: dict[Goal, Message] = {
    "samples/s": message("tune.fastest"),
    "metric": message("tune.best_metric"),
    "memory": message("tune.least_memory"),
}
# The low-memory preset may be slower than the fastest, but not by more than this.
_LEAST_SPEED = 0.7
_ROUNDING = 1e-9
# As fast: what is less is not worth more memory or workers.
_AS_FAST = 0.98


def pick_best(points: Sequence[Point], knobs: Sequence[Knob], objective: Objective, baseline: Point | None) -> Pick:
    """By the user's own goal and limits. Of those as fast as the fastest, the one that takes least."""
    usable = [point for point in points if objective.score(point) > float("-inf")]
    if not usable:
        return Pick("chosen", None, message("tune.none_usable"))
    top = max(usable, key=objective.score)
    if objective.goal == "samples/s":
        if baseline is not None and _is_no_faster(top, baseline, objective):
            return Pick("chosen", baseline, message("tune.none_faster"))
        top = _least(usable, objective, _AS_FAST * (objective.speed(top) or 0.0), knobs)
    quality = _verified(top, knobs, objective, baseline)
    return Pick("chosen", top, message("tune.chosen", why=_REASONS[objective.goal], quality=quality))


def pick_preset(
    name: str, points: Sequence[Point], knobs: Sequence[Knob], objective: Objective, baseline: Point | None
) -> Pick:
    """The fastest within the budget of quality, or for low-memory the smallest that is fast enough."""
    usable = [point for point in points if not objective.obstacle(point) and objective.speed(point) is not None]
    allowed = [point for point in usable if not _too_much(name, point, knobs, objective, baseline)]
    if not allowed:
        return Pick(name, None, message("tune.none_within"))
    fastest = max(objective.speed(point) or 0.0 for point in allowed)
    if name == "low-memory":
        known = [point for point in allowed if point.memory_bytes is not None]
        if not known:
            return Pick(name, None, message("tune.memory_unmeasured"))
        enough = [point for point in known if (objective.speed(point) or 0.0) >= _LEAST_SPEED * fastest]
        chosen = min(enough or known, key=lambda point: point.memory_bytes or 0.0)
    else:
        chosen = _least(allowed, objective, _AS_FAST * fastest, knobs)
    return Pick(name, chosen, _verified(chosen, knobs, objective, baseline))


def loss(point: Point, objective: Objective, baseline: Point | None) -> float | None:
    """What it loses against the script as it is: in dB, or as a share; None where either was not measured."""
    # A metric grows with the training, so only equal lengths are compared.
    if objective.metric is None or baseline is None or baseline.steps != point.steps:
        return None
    before, after = objective.quality(baseline), objective.quality(point)
    if before is None or after is None:
        return None
    if objective.metric.in_decibel:
        return before - after
    return (before - after) / abs(before) if before else None


def _too_much(name: str, point: Point, knobs: Sequence[Knob], objective: Objective, baseline: Point | None) -> bool:
    lost = loss(point, objective, baseline)
    if lost is not None:
        assert objective.metric is not None
        # 30.6 − 30.3 is not 0.3 to a computer.
        return lost > (_DECIBEL if objective.metric.in_decibel else _SHARE)[name] + _ROUNDING
    return any(knob.safety not in _CLASSES[name] for knob in _turned(point, knobs))


def _verified(point: Point, knobs: Sequence[Knob], objective: Objective, baseline: Point | None) -> Message:
    lost = loss(point, objective, baseline)
    if not point.setting or (baseline is not None and setting_key(point.setting) == setting_key(baseline.setting)):
        return message("tune.as_it_is")
    if lost is not None:
        assert objective.metric is not None
        amount = message("tune.decibel" if objective.metric.in_decibel else "tune.share", loss=abs(lost))
        return message("tune.quality_lower" if lost > 0 else "tune.quality_higher", amount=amount, steps=point.steps)
    classes = {knob.safety for knob in _turned(point, knobs)}
    if classes <= {"lossless"}:
        return message("tune.lossless_only")
    return message("tune.no_metric_given" if objective.metric is None else "tune.no_metric_printed")


def _is_no_faster(point: Point, baseline: Point, objective: Objective) -> bool:
    """Within what trials tell apart, and within twice the error of their ratio."""
    before, after = objective.speed(baseline), objective.speed(point)
    if objective.obstacle(baseline) or not before or not after:
        return False
    return after / before - 1 <= max(1 / _AS_FAST - 1, 2 * math.hypot(point.error or 0.0, baseline.error or 0.0))


def _turned(point: Point, knobs: Sequence[Knob]) -> list[Knob]:
    return [knob for knob in knobs if knob.name in point.setting and point.setting[knob.name] is not False]


def _least(points: Sequence[Point], objective: Objective, speed: float, knobs: Sequence[Knob]) -> Point:
    """Of those at least so fast, the one with least memory (in steps of five per cent), then the smallest numbers."""
    enough = [point for point in points if (objective.speed(point) or 0.0) >= speed]
    known = [point.memory_bytes for point in enough if point.memory_bytes is not None]
    floor = min(known, default=0.0) * 1.05

    def cost(point: Point) -> tuple[bool, float, float]:
        numbers = [float(point.setting[knob.name]) for knob in knobs if knob.is_ordered and knob.name in point.setting]
        return (point.memory_bytes or 0.0) > floor, sum(numbers), -(objective.speed(point) or 0.0)

    return min(enough, key=cost)


# The files of a pick: a profile, copies of config files, and the command line to use them with.

PROFILE, COMMAND = "flatout.toml", "command.txt"


def write_pick(pick: Pick, trials: SettingTrials, folder: Path, figures: str) -> Pick:
    """The pick with its files; the folder is the pick's own."""
    if pick.point is None:
        return pick
    remedies = trials.profile(pick.point.setting).values
    comments = [f"{pick.name}: {describe_setting(pick.point.setting)}", figures, english(pick.why)]
    folder.mkdir(parents=True, exist_ok=True)
    if remedies:
        write_atomic(folder / PROFILE, profile_toml(remedies, [comment for comment in comments if comment]))
    command = command_text(trials.command_for(pick.point.setting, folder), bool(remedies), folder, trials.cwd)
    write_atomic(folder / COMMAND, command + "\n")
    return replace(pick, folder=os.path.relpath(folder, trials.cwd), command=command)


def command_text(command: Sequence[str], with_profile: bool, folder: Path, cwd: Path) -> str:
    """To be typed in the working folder."""
    if with_profile:
        return shlex.join(["flatout", "run", "--with", os.path.relpath(folder / PROFILE, cwd), *command])
    first = command[0]
    return shlex.join(["python", *command] if first.startswith("-m") or first.endswith(".py") else command)
