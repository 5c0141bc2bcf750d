"""What a change would gain: the model played with and without it.

The model has to reproduce the run first: what cannot be reproduced cannot be foretold.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import Any

from flatout.model.edits import Edit, Edits, LessHost, LessPause, NoSync, ReadyBatches, apply_edits, describe_edits
from flatout.model.figures import BATCH_OFF, LEAST_CPU, LEAST_HOST, NOTICED, REPRODUCED, WORK_COOLS
from flatout.model.simulation import Played, simulate
from flatout.model.step import Loader, StepModel, build_model
from flatout.records.evidence import Evidence
from flatout.records.report import Gain

# Draws from what was measured; `low` and `high` are the second of either end, about a twentieth of them beyond.
_DRAWS = 18
_AROUND = 3
_STRETCHES, _HALVINGS = 4, 6
# Less than this is not worth another round.
_HARDLY = 1.01
# A batch that takes so many times the mean is a slow one.
_SLOW = 2.0
# The standard deviation of a sixteenth of a run, from half of the 95% interval of its mean (diagnose/steady.py).
# Another run differs by no less than the parts of this one do.
_OF_A_PART = 4.0 / 2.13
# Shorter stretches of steps than this are not alike: blocks of them are drawn.
_BLOCK = 8


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A model with its free parameters set by the run, and the step it then gives."""

    model: StepModel
    played_ms: float
    # The same run if computing is slower after other work.
    others: tuple[StepModel, ...] = ()

    @property
    def error(self) -> float:
        return self.played_ms / self.model.step_ms - 1.0

    @property
    def is_reproduced(self) -> bool:
        return abs(self.error) <= REPRODUCED


# Detectors ask many times about the same run.
_LAST: list[tuple[Evidence, Calibrated | None]] = []


def model_of(run: Evidence) -> Calibrated | None:
    """The calibrated model of a run; None without steps."""
    for known, calibrated in _LAST:
        if known is run:
            return calibrated
    built = build_model(run)
    calibrated = None if built is None else calibrate(built)
    if built is not None and calibrated is not None:
        others = [calibrate(replace(built, work_cools=cools)) for cools in WORK_COOLS]
        calibrated = replace(calibrated, others=tuple(other.model for other in others if other.is_reproduced))
    _LAST[:] = [(run, calibrated)]
    return calibrated


def can_promise(run: Evidence) -> bool:
    """Does the model give the step that was measured?"""
    calibrated = model_of(run)
    return calibrated is not None and calibrated.is_reproduced


def calibrate(model: StepModel) -> Calibrated:
    """Set what the run does not tell directly: undisturbed times where processors were shared, and a steady batch."""
    model = _undisturbed(model)
    played_ms, loader = simulate(model).step_ms, model.loader
    if loader is None or not loader.workers or abs(played_ms / model.step_ms - 1) <= REPRODUCED / 5:
        return Calibrated(model, played_ms)
    fitted = _fit_batches(model, loader, played_ms)
    # Waits that no mean batch explains are for batches that take longer, where there are such.
    return fitted if fitted.is_reproduced else min(fitted, _fit_slow_batches(model, loader, played_ms), key=_off)


def _undisturbed(model: StepModel) -> StepModel:
    """Times were measured with processors shared and waits before them: what they would be alone gives these again."""
    loader, own_ms, alone = model.loader, model.own_ms, model
    for _ in range(_STRETCHES):
        played = simulate(alone)
        stretched = max(played.main_stretch, played.worker_stretch)
        if own_ms <= 0 or (stretched < _HARDLY and played.cold_ms < (_HARDLY - 1.0) * own_ms):
            break
        alone = _warm(model, played)
        if loader is not None:
            pace = played.worker_stretch
            quicker = replace(loader, batch_ms=loader.batch_ms / pace, slow_ms=loader.slow_ms / pace)
            alone = replace(alone, loader=quicker)
    return alone


def _warm(model: StepModel, played: Played) -> StepModel:
    """The training thread's work without what it took longer: sleep takes no longer, other work where it shares."""
    own_ms, beside_ms, stretch = model.own_ms, model.beside_ms, played.main_stretch
    asleep_ms = model.asleep_ms
    aside_ms = asleep_ms + (beside_ms - asleep_ms) / stretch
    computing_ms = max(0.0, own_ms - beside_ms - played.cold_ms) / stretch
    besides = model.aside_ms
    if sum(besides.values()) < beside_ms:
        # Where it sleeps is not known: in all phases alike.
        part = (aside_ms + computing_ms) / own_ms
        return replace(model, host_ms={name: ms * part for name, ms in model.host_ms.items()}, warm=(part, part))
    part = computing_ms / (own_ms - beside_ms) if own_ms > beside_ms else 1.0
    aside = {name: ms * aside_ms / beside_ms for name, ms in besides.items()}
    host = {name: aside.get(name, 0.0) + part * (ms - besides.get(name, 0.0)) for name, ms in model.host_ms.items()}
    warm = (part, aside_ms / beside_ms if beside_ms > 0 else 1.0)
    return replace(model, host_ms=host, aside_ms=aside, warm=warm)


def _fit_batches(model: StepModel, loader: Loader, played_ms: float) -> Calibrated:
    """Scale what a batch takes, within what its mean may be off."""
    least = 0.0 if loader.is_most else 1.0 / BATCH_OFF
    bounds = (least, 1.0) if played_ms > model.step_ms else (1.0, BATCH_OFF)
    return _fit(Calibrated(model, played_ms), bounds, lambda factor: _scale_batches(loader, factor))


def _fit_slow_batches(model: StepModel, loader: Loader, played_ms: float) -> Calibrated:
    """So many batches are as slow as the slowest; the others make up for it."""
    best = Calibrated(model, played_ms)
    if played_ms > model.step_ms or loader.slowest_ms < _SLOW * loader.batch_ms:
        return best
    bounds = 0.0, min(0.5, loader.batch_ms / loader.slowest_ms)
    return _fit(best, bounds, lambda share: replace(loader, slow_share=share, slow_ms=loader.slowest_ms))


def _fit(best: Calibrated, bounds: tuple[float, float], change: Callable[[float], Loader]) -> Calibrated:
    """Halve the bounds of what makes the step longer until that is as measured; the best of all that were tried."""
    model, (low, high) = best.model, bounds
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        edited = replace(model, loader=change(middle))
        tried = Calibrated(edited, simulate(edited).step_ms)
        best = min(best, tried, key=_off)
        low, high = (low, middle) if tried.played_ms > model.step_ms else (middle, high)
    return best


def _off(calibrated: Calibrated) -> float:
    return abs(calibrated.error)


def _scale_batches(loader: Loader, factor: float) -> Loader:
    making_ms = loader.batch_ms * factor
    # The first wait of an epoch is as it was measured: what is not making a batch is starting.
    start_ms = max(0.0, loader.start_ms + loader.batch_ms - making_ms) if loader.is_most else loader.start_ms
    return replace(loader, batch_ms=making_ms, slow_ms=loader.slow_ms * factor, start_ms=start_ms)


def predict(run: Evidence, change: Edits) -> Gain | None:
    """The gain, whether the model reproduces the run or not; None where nothing is gained or can be said."""
    calibrated = model_of(run)
    if calibrated is None or not change.likely:
        return None
    model = calibrated.model
    if model.device is not None and model.device.work_ms is None and _needs_device(model, change.likely):
        return None
    edited_ms = simulate(apply_edits(model, change.likely)).step_ms
    if not calibrated.is_reproduced:
        # What it costs is all that can be said: what the model does not explain stays, unless all waiting goes.
        unexplained_ms = model.step_ms - calibrated.played_ms
        goes = unexplained_ms > 0 and any(isinstance(edit, ReadyBatches) for edit in change.likely)
        calibrated = replace(calibrated, played_ms=model.step_ms)
        edited_ms += 0.0 if goes else unexplained_ms
    ways = _other_ways(model)
    likely = [calibrated.played_ms / max(edited_ms, LEAST_HOST * model.step_ms)]
    likely += [_ratio(way, change.likely) for way in ways]
    mid = likely[0] if not ways else geometric_mean(max(1.0, ratio) for ratio in likely)
    if not mid >= NOTICED:
        return None
    models = (model, *ways, *calibrated.others)
    ratios = sorted(_drawn(models[draw // _AROUND % len(models)], change, draw) for draw in range(_DRAWS))
    # Of what takes time no more can go; whether any of it can is not known.
    low = 1.0 if change.is_most else max(1.0, min(mid, ratios[1]))
    high = max(mid, ratios[-2])
    return Gain(low=low, mid=mid, high=high, method=describe_edits(model, change.likely, change.is_most))


def _other_ways(model: StepModel) -> list[StepModel]:
    """As the next run may be as well, where this one does not tell: beside nobody, or with samples that only wait."""
    ways, loader, processors = [model], model.loader, model.processors
    if processors.is_crowded and processors.others > 0:
        quiet = replace(processors, others=0.0)
        ways += [replace(way, processors=quiet) for way in ways]
    if loader is not None and not loader.is_computing_known:
        waiting = replace(loader, computing=LEAST_CPU)
        ways += [replace(way, loader=waiting) for way in ways]
    return ways[1:]


def _ratio(model: StepModel, edits: Sequence[Edit]) -> float:
    edited_ms = simulate(apply_edits(model, edits)).step_ms
    return simulate(model).step_ms / max(edited_ms, LEAST_HOST * model.step_ms)


def _needs_device(model: StepModel, edits: Sequence[Edit]) -> bool:
    """Sparing the host gains nothing where the device has the work: that has to be known."""
    short = {phase for phase, pause in model.pauses.items() if not pause.is_long}
    return any(
        isinstance(edit, LessHost | NoSync) or (isinstance(edit, LessPause) and edit.phase in short) for edit in edits
    )


def _drawn(model: StepModel, change: Edits, draw: int) -> float:
    """The gain with everything that was measured drawn again: steps in blocks, looks at lines, the change itself."""
    chance = random.Random(draw)
    edits = (change.worst or change.likely, change.likely, change.best or change.likely)[draw % _AROUND]
    again = _draw_again(model, chance)
    before_ms = simulate(again).step_ms
    after_ms = simulate(apply_edits(again, [_look_again(edit, model, chance) for edit in edits])).step_ms
    return _another_run(model, chance) * before_ms / max(after_ms, 1e-9)


def _another_run(model: StepModel, chance: random.Random) -> float:
    """The run with the change is another one, and at any of the speeds that this one had."""
    off = chance.gauss(0.0, 1.0) * math.hypot(_OF_A_PART * model.step_error, REPRODUCED)
    return math.exp(off + chance.uniform(-0.5, 0.5) * math.log(model.varied))


def _draw_again(model: StepModel, chance: random.Random) -> StepModel:
    """Other steps of the same run."""
    spread = model.spread
    if len(spread) < 2 * _BLOCK:
        return model
    starts = [chance.randrange(len(spread)) for _ in range(0, len(spread), _BLOCK)]
    drawn = [spread[(start + index) % len(spread)] for start in starts for index in range(_BLOCK)]
    factor = sum(drawn) / len(drawn)
    host = {name: ms * factor for name, ms in model.host_ms.items()}
    return replace(model, host_ms=host, spread=tuple(drawn))


def _look_again(edit: Edit, model: StepModel, chance: random.Random) -> Edit:
    """What the line sampler would have seen another time."""
    sampled: Any = edit
    if not getattr(edit, "is_sampled", False) or not model.looks or not model.step_ms:
        return edit
    share = min(1.0, max(0.0, sampled.ms / model.step_ms))
    off = (share * (1.0 - share) / model.looks) ** 0.5 * model.step_ms
    changed: Edit = replace(sampled, ms=max(0.0, sampled.ms + chance.gauss(0.0, 1.0) * off))
    return changed


def severity(gain: Gain) -> str:
    return "high" if gain.mid >= 1.2 else "medium" if gain.mid >= 1.05 else "low"
