"""How long trials have to be, from a first look at the script: long enough to tell arms apart, short enough to pay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flatout.experiment.statistics.rates import pause_seconds, step_seconds
from flatout.records.report import RunReport
from flatout.records.trial import Trial
from flatout.remedies.catalogue import known, remedies, traits_of
from flatout.remedies.traits import Pauses

# Steps of the first look that do not count.
LOOK_WARM_UP = 10
# Warm-up, and the steps that count at least: fewer where they are slow.
_WARM_UPS, _WARM_UP_S = (4, 10), 3.0
_FEWEST, _FEWEST_S = (10, 30), 8.0
_MOST = 400
_WINDOW_S = 5.0
# A remedy that finds its number while it runs takes some steps for that, or some time.
_SETTLES, _SETTLES_S = (24, 40), 12.0
# So much faster a step may be by then.
_FASTER = 2.0
# One that keeps what comes again compares a few times first, once its epoch is over.
_COMPARED, _THEN = 8, 60
# Pauses that a trial has to see; what comes every other step is in any trial.
_PAUSES_SEEN, _OFTEN = 3.3, 2.0
_HELD_UP = 20.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of trials: `steps` that count at least, and `window_s` of them; what a bare step takes, and the start."""

    warm_up: int
    steps: int
    window_s: float
    step_s: float
    start_s: float
    # Steps of an epoch, where the loader says how many.
    epoch_steps: int | None = None
    # Loaders begin with the workers that they came to before.
    is_settled: bool = False
    # Remedies whose first trial has left what later ones would need an epoch for, with their values.
    carried: frozenset[tuple[str, str]] = frozenset()
    # Of remedies that gain in pauses: the steps from one such pause to the next, where that is known.
    pause_intervals: Mapping[str, float] = field(default_factory=dict)

    def with_pauses_of(self, report: RunReport) -> Sizes:
        found = find_pause_intervals(report, self.epoch_steps)
        return replace(self, pause_intervals={**self.pause_intervals, **found})

    def before(self, profile: Mapping[str, Any]) -> int:
        """Steps before all of a profile is in force and has settled."""
        waiting = (self.epoch_steps or 0) if self.waits(profile) else 0
        waiting += _COMPARED if waits_an_epoch(profile) else 0
        return self.warm_up + waiting + self.settling(profile) + warm_up_steps(profile, self.step_s / _FASTER)

    def waits(self, profile: Mapping[str, Any]) -> bool:
        """Whether an epoch has to pass before all of it is in force."""
        by_epoch = {(name, str(value)) for name, value in profile.items() if waits_an_epoch([name])}
        return not by_epoch <= self.carried

    def settling(self, profile: Mapping[str, Any]) -> int:
        return 0 if self.is_settled else settling(profile.items(), self.step_s / _FASTER)

    def fewest(self, profile: Mapping[str, Any]) -> int:
        """Steps in all that a trial of it makes at least."""
        counted = self.steps + (_THEN if waits_an_epoch(profile) else 0)
        return self.before(profile) + max(counted, self.sees(profile))

    def sees(self, profile: Mapping[str, Any]) -> int:
        """Steps that hold enough of the pauses that a profile is about; 0 where it is about none."""
        intervals = (self.pause_intervals.get(name, 0.0) for name in profile)
        return max((round(_PAUSES_SEEN * steps) for steps in intervals), default=0)

    def most(self, profile: Mapping[str, Any]) -> int:
        return max(self.fewest(profile), self.before(profile) + _MOST)

    def about(self, profile: Mapping[str, Any], speed_up: float = 1.0) -> int:
        """What it will come to where a step takes so many times less than a bare one."""
        wanted = self.before(profile) + round(self.window_s * max(1.0, speed_up) / self.step_s)
        return min(self.most(profile), max(self.fewest(profile), wanted))

    def late_s(self, profile: Mapping[str, Any]) -> float:
        """What passes before a profile that needs an epoch has come into force."""
        return (self.epoch_steps or 0) * self.step_s * 1.1 if self.waits(profile) else 0.0

    def settling_s(self, profile: Mapping[str, Any]) -> float:
        """What a loader may take until it has found its number of workers: the script is faster by then."""
        return self.settling(profile) * self.step_s * 0.6

    def seconds_for(self, profile: Mapping[str, Any], speed_up: float = 1.0) -> float:
        """What a trial of it will take in all, about."""
        slow = self.before(profile) if self.waits(profile) else 0
        quick = (self.about(profile, speed_up) - slow) / max(1.0, speed_up)
        return self.start_s + self.begins_s(profile) + (slow + quick) * self.step_s

    def begins_s(self, profile: Mapping[str, Any]) -> float:
        return sum(traits_of(name).compiles_s for name in profile)


def settling(values: Iterable[tuple[str, Any]], step_s: float) -> int:
    """Steps of so many seconds until those that find their number while they run have found it."""
    is_settling = any(tunes_itself(name, value) for name, value in values)
    return _between(_SETTLES, _SETTLES_S / step_s) if is_settling else 0


def tunes_itself(name: str, value: Any) -> bool:
    """Whether this remedy, with this value, finds its number while it runs."""
    tuning = traits_of(name).self_tuning
    return tuning is not None and str(value) == tuning.value


def waits_an_epoch(profile: Iterable[str]) -> bool:
    return any(traits_of(name).begins_with_second_epoch for name in profile)


def sizes(look: Trial, report: RunReport, affordable_s: float) -> Sizes:
    """`affordable_s` is what one trial may take at most."""
    step_s = max(1e-5, _step_s(look))
    start_s = max(1.0, look.wall_s - float(np.sum(look.step_s)) - LOOK_WARM_UP * step_s)
    window_s = min(_WINDOW_S, max(1.0, affordable_s - start_s))
    warm_up = _between(_WARM_UPS, _WARM_UP_S / step_s)
    steps = _between(_FEWEST, _FEWEST_S / step_s)
    epoch_steps = _epoch_steps(report)
    intervals = find_pause_intervals(report, epoch_steps)
    return Sizes(warm_up, steps, window_s, step_s, start_s, epoch_steps, pause_intervals=intervals)


def _step_s(look: Trial) -> float:
    """What one takes on average without pauses: where a batch comes late and the next with it, no step is like the
    middle of them. One that was held up once is cut down.
    """
    own_s = step_seconds(look) - pause_seconds(look)
    return float(np.mean(np.minimum(own_s, _HELD_UP * np.median(own_s))))


def find_pause_intervals(report: RunReport, epoch_steps: int | None) -> dict[str, float]:
    """By remedy. What comes about every step is in any trial."""
    found = {
        remedy.id: float(epoch_steps or 0) for remedy in remedies() if remedy.traits.pauses is Pauses.BETWEEN_EPOCHS
    }
    for finding in report.findings:
        if finding.remedy in known() and traits_of(finding.remedy).gains_in_pauses:
            calls = float(str(finding.evidence.get("calls_per_step", 0)))
            between = float(str(finding.evidence.get("steps_between", 0))) or (1.0 / calls if calls else 0.0)
            found[finding.remedy] = max(between, found.get(finding.remedy, 0.0))
    return {name: steps for name, steps in found.items() if steps > _OFTEN}


def _between(bounds: tuple[int, int], wanted: float) -> int:
    return int(min(bounds[1], max(bounds[0], wanted)))


def _epoch_steps(report: RunReport) -> int | None:
    """Batches of the loader that the training goes through; None where there are several, or it does not say."""
    live: Any = report.live
    training = live.get("torch", {}).get("training_loaders") or ()
    loaders = [loader for loader in live.get("loaders", ()) if loader.get("id") in training]
    if len(loaders) != 1 or not loaders[0].get("dataset_len"):
        return None
    size = loaders[0].get("batch_sampler_size") or loaders[0].get("batch_size") or 1
    return -(-int(loaders[0]["dataset_len"]) // int(size))


# Warm-up of remedies: some observe for a while, or compile, before they begin. A trial's steps count from then on.


def warm_up_steps(names: Iterable[str], step_s: float = 0.0) -> int:
    """One after the other, at the worst, where a step takes so long."""
    return sum(traits_of(name).warm_up.at(step_s) for name in names)
