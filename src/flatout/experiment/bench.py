"""Where trials are made: each once, kept by what was in force, within the time there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flatout.errors import FlatoutError
from flatout.experiment.judge import is_repeatable, lossless_part, with_enough_losses, workers_found
from flatout.experiment.plan import Wishes
from flatout.experiment.request import Request
from flatout.experiment.sizing import LOOK_WARM_UP, Sizes, sizes, tunes_itself, waits_an_epoch
from flatout.experiment.statistics.quality import FEWEST_CONTROLS
from flatout.experiment.trial_store import TrialKey, TrialKind, TrialStore
from flatout.experiment.turns import ROUNDS, Arms, count_timed_steps, count_turn_steps
from flatout.records.message import Message, message
from flatout.records.report import RunReport
from flatout.records.trial import Trial
from flatout.remedies.catalogue import traits_of
from flatout.words import english

BARE = "as it is"
KEPT = "kept so far"
CEILING = "ceiling"
FEED = "loaders alone"
PERTURBED = "perturbed weights"
# By a few of float32's last bits.
LAST_BITS = 2.0**-20
RESEEDED = "other random numbers"
SCREENING = "remedies in turns"
# Steps of up to so many seconds are quick.
_QUICK_S = 0.06
# A look: enough steps for a verdict, and no more than a part of the time there is: the first, and one under a profile.
_LOOK_STEPS, _LOOK_SHARES, _LOOK_LEAST_S = 150, (0.06, 0.04), 4.0
# What a script may take to start before that is known.
_UNKNOWN_START_S = 60.0
# One trial may take this part of the whole time; there are a dozen or two.
TRIAL_SHARE = 0.08
_HASTY = 0.4
_EPOCH_SHARE = 0.15
# However slow its steps are, a trial of the speed alone takes no longer; one whose losses count has so many steps,
# and every one has where they take no longer than this.
_LONGEST_S = 25.0
LOSSES, _LEEWAY, _SOON_S = 45, 1.3, 13.0
# So many batches come again and again there, fewer where steps are slow; steps until the last of them is on the device.
_REPLAYED, _COLLECTING = 8, 2
# Trials that see pauses, and the part of the time that they may take.
_PAUSE_TRIALS, _PAUSES_SHARE = 4, 0.6
_LEEWAY_FOR_PAUSES = 2.0
# Losses with a profile in force that are compared with those of the bare script.
_MET = 10
_USUAL_WORKERS = 8
# What the proof takes in trials of the profile, beside one of the bare script.
_PROOF_TRIALS = 1.8
# Of compiling, what torch's cache spares the trials behind the first.
_CACHED = 0.6
# Trials of the bare script that see pauses, where the profile is about them, and the part of the time they may take.
_FEWEST_SEEN, _SEEN_SHARE = 2, 0.2


@dataclass(frozen=True, slots=True)
class Settings:
    """What a search was asked for."""

    command: tuple[str, ...]
    wishes: Wishes = field(default_factory=Wishes)
    budget_s: float = 600.0
    metric: str | None = None
    higher: bool = True
    allow_writes: bool = False
    # Part of the time that is kept for the proof at the end, unless that needs less.
    reserve: float = 0.35
    # Takes the place of `budget_s` where steps are quick: as much is learnt in less time.
    quick_budget_s: float | None = None


Make = Callable[[Request], Trial]


@dataclass(frozen=True, slots=True)
class _Length:
    """Of a trial: steps in all or seconds, whichever is sooner, and the first steps that do not count."""

    steps: int
    seconds: float
    warm_up: int


def _stopwatch(clock: Callable[[], float] = time.monotonic) -> Callable[[], float]:
    began_s = clock()
    return lambda: clock() - began_s


def take_first_look(
    settings: Settings,
    make: Make,
    report_of: Callable[[Trial], RunReport],
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Bench, RunReport]:
    """Diagnose the script as it is, which says how long trials have to be. Raises FlatoutError if it does not train."""
    elapsed_s = _stopwatch(clock)
    look = make(_request(settings, {}, "look", _look_length(settings, {}), with_lines=True))
    if not look.step_s:
        ending = f"{look.ending}: {english(look.why)}"
        raise FlatoutError(f"the script does not train as it is ({ending}); see {look.run}/output.txt")
    report = report_of(look)
    quick_s = settings.quick_budget_s
    if quick_s is not None and float(np.median(look.step_s)) <= _QUICK_S:
        settings = replace(settings, budget_s=quick_s)
    bench = Bench(settings, make, sizes(look, report, TRIAL_SHARE * settings.budget_s), elapsed_s)
    bench.made.all.append(look)
    return bench, report


class Bench:
    """Makes trials, each long enough and within the time there is, and keeps them in `made`."""

    def __init__(
        self, settings: Settings, make: Make, sizes: Sizes, elapsed_s: Callable[[], float] | None = None
    ) -> None:
        self.settings = settings
        self.sizes = sizes
        self.made = TrialStore()
        self._make = make
        self._elapsed_s = elapsed_s or _stopwatch()
        self._workers: dict[str, int] = {}

    @property
    def took_s(self) -> float:
        return self._elapsed_s()

    @property
    def left_s(self) -> float:
        return self.settings.budget_s - self.took_s

    def look(self, profile: Mapping[str, Any]) -> Trial:
        """A trial with the lines of the user's code watched, for a diagnosis; its speed is not used."""
        return self._ask(profile, "look", self._look_length(profile), with_lines=True)

    def _look_length(self, profile: Mapping[str, Any]) -> _Length:
        length = _look_length(self.settings, profile)
        return replace(length, seconds=length.seconds + self.sizes.late_s(profile))

    def trial(self, profile: Mapping[str, Any], arm: str, *, again: bool = False, losses: int = 0) -> Trial:
        """One of this profile: made before, unless it is to be made again. `losses`: so many steps at least."""
        trials = self.made.of(profile)
        if trials and not again:
            return trials[0]
        made = self._timed(profile, arm, losses, repeat=len(trials))
        if not trials and not waits_an_epoch(profile) and self._is_hasty(made):
            made = self._timed(profile, arm, losses, self._speed_up([made]))
        self.made.add(TrialKey.of(profile), made)
        if not profile and made.ended_well:
            self._learn_start(made)
        return made

    def _learn_carried(self, trial: Trial) -> None:
        kept = {(state.id, str(state.value)) for state in trial.states if state.live.get("carried")}
        if kept:
            self.sizes = replace(self.sizes, carried=self.sizes.carried | kept)

    def _learn_start(self, bare: Trial) -> None:
        """The first look takes the longest to start: nothing is in the machine's caches, nothing was started ahead."""
        start_s = max(1.0, bare.wall_s - sum(bare.step_s) - self.sizes.warm_up * self.sizes.step_s)
        self.sizes = replace(self.sizes, start_s=min(start_s, self.sizes.start_s))

    def _timed(
        self, profile: Mapping[str, Any], arm: str, losses: int, speed_up: float | None = None, **more: Any
    ) -> Trial:
        """One whose speed counts: it goes on until it has steps enough and has seen them for a while."""
        collecting = more["replays"] + _COLLECTING if "replays" in more else 0
        sized = replace(self.sizes, warm_up=max(collecting, self.sizes.warm_up))
        step_s = sized.step_s / self._speed_up(self.made.nearest(profile))
        losses = max(losses, LOSSES if LOSSES * step_s < _SOON_S else 0, self.to_see(profile))
        fewest = max(losses, sized.fewest(profile) if speed_up is None else sized.about(profile, speed_up))
        leeway = _LEEWAY if losses <= LOSSES else _LEEWAY_FOR_PAUSES
        return self._ask(
            profile,
            arm,
            _Length(
                max(fewest, sized.most(profile)),
                max(self._most_s(profile), leeway * losses * sized.step_s),
                sized.warm_up,
            ),
            enough=(fewest, sized.before(profile), sized.window_s),
            digest_at=sized.warm_up + sized.steps,
            **more,
        )

    def _is_hasty(self, trial: Trial) -> bool:
        """Whether it ended so soon that prefetched batches may have carried it, as ranks do, which share no clock."""
        return trial.ended_well and sum(trial.step_s) < _HASTY * self.sizes.window_s

    def ceiling(self, profile: Mapping[str, Any]) -> Trial:
        """The same on batches that lie on the device: what is left of the profile then is its arithmetic."""
        # What loads and brings the batches has no part in it. What gains in an evaluation has, which loads its own.
        kept = {name: value for name, value in profile.items() if not traits_of(name).feeds_batches}
        key = TrialKey.of(kept, TrialKind.CEILING)
        if not self.made.get(key):
            batches, speed_up = min(_REPLAYED, self.sizes.warm_up), self._speed_up(self.made.timed(profile))
            self.made.add(key, self._timed(kept, CEILING, self.to_see(profile), speed_up, replays=batches))
        return self.made.alike(self.made.get(key))[0]

    def feed(self, profile: Mapping[str, Any]) -> Trial:
        """The script's loaders alone under this profile: no training is faster than its batches come."""
        key = TrialKey.of(profile, TrialKind.LOADERS_ALONE)
        if not self.made.get(key):
            steps = self.sizes.about(profile, self._speed_up(self.made.timed(profile)))
            length = _Length(steps, self._most_s(profile), self.sizes.warm_up)
            self.made.add(key, self._ask(profile, FEED, length, feeds=True))
        return self.made.get(key)[0]

    def perturb(self, profile: Mapping[str, Any], by: float) -> None:
        """One more trial whose weights are moved by such a share after its first step."""
        key = TrialKey.of(profile, TrialKind.PERTURBED, by)
        self.made.add(key, self._timed(profile, PERTURBED, LOSSES, perturbed=by, repeat=len(self.made.get(key))))

    def reseed(self, steps: int = 0) -> None:
        """One more of the bare script with other random numbers: what that luck does to the losses."""
        key, seed = TrialKey.of({}, TrialKind.RESEEDED), len(self.made.reseeded()) + 1
        self.made.add(key, self._timed({}, RESEEDED, max(steps, LOSSES), reseeded=seed))

    def screening(self, profile: Mapping[str, Any], arms: Arms, instead_of: int, settling: int = 0) -> Trial | None:
        """Arms that take turns within one process; None where that many processes are faster, or time is short."""
        # Turns would be taken before what waits for an epoch is in force.
        if self.sizes.waits(profile):
            return None
        step_s, each_s = self.sizes.step_s / self._speed_up(self.made.timed(profile)), self.lasts_s(profile)
        most_s = min(instead_of * each_s, self.left_s - each_s - self.reserve_s(profile))
        warm_up, timed = self.sizes.before(profile), max(settling, count_timed_steps(step_s))
        for rounds in ROUNDS:
            steps = count_turn_steps(arms, warm_up, rounds, timed, settling)
            if self.sizes.start_s + steps * step_s < most_s:
                length = _Length(steps, steps * step_s + self._most_s(profile), warm_up)
                return self._ask(profile, SCREENING, length, arms=arms, timed=timed, settling=settling)
        return None

    @property
    def workers(self) -> int:
        """Of a loader, as many as were found to be good; a guess where none was asked to find out."""
        return max(self._workers.values(), default=_USUAL_WORKERS)

    def to_see(self, profile: Mapping[str, Any], under: Mapping[str, Any] | None = None) -> int:
        """Steps in all of a trial that sees the pauses a profile is about; of that profile, or one `under` another."""
        steps = self.sizes.sees(profile)
        return self.sizes.before(profile if under is None else under) + steps if steps else 0

    def lasts_s(self, profile: Mapping[str, Any], losses: int = 0) -> float:
        """What a trial of it will take: as long as the last one did, or by what is known of the script."""
        speed_up = self._speed_up(self.made.nearest(profile))
        known = [trial.wall_s for trial in self.made.of(profile) if trial.wall_s]
        most_s = self.sizes.start_s + self._most_s(profile)
        each_s = known[-1] if known else min(most_s, self.sizes.seconds_for(profile, speed_up))
        return max(each_s, self.sizes.start_s + losses * self.sizes.step_s / speed_up)

    def reserve_s(self, profile: Mapping[str, Any]) -> float:
        """What is kept for the proof of such a profile."""
        # What changes numbers is held against the lossless part: the bare script need not go as far.
        bare, losses = self.made.of({}), self.losses_for(lossless_part(profile))
        missing, seen = 1, self.bare_sees(profile)
        if not is_repeatable(bare):
            # Of a script that does not repeat itself it has to be known what it varies by.
            missing, losses = max(missing, FEWEST_CONTROLS - len(with_enough_losses(bare))), max(losses, LOSSES)
        if seen:
            missing = max(missing, _FEWEST_SEEN - len(self.made.timed({}, seen)))
            losses = max(losses, self.to_see(profile, under={}))
        needed_s = _PROOF_TRIALS * self._lasts_again_s(profile) + missing * self.lasts_s({}, losses)
        return min(self.settings.reserve * self.settings.budget_s, needed_s)

    def _lasts_again_s(self, profile: Mapping[str, Any]) -> float:
        """What a trial of it will take that is not the first: what was compiled then is in torch's cache."""
        is_first = not any(trial.wall_s for trial in self.made.of(profile))
        return self.lasts_s(profile) - (_CACHED * self.sizes.begins_s(profile) if is_first else 0.0)

    def bare_sees(self, profile: Mapping[str, Any]) -> int:
        """Steps in which the baseline has the pauses that a profile is about; 0 where there is no time to see them."""
        each_s = self.sizes.start_s + self.to_see(profile, under={}) * self.sizes.step_s
        has_time, seen = _FEWEST_SEEN * each_s <= _SEEN_SHARE * self.settings.budget_s, self.sizes.sees(profile)
        return seen if has_time or len(self.made.timed({}, seen)) >= _FEWEST_SEEN else 0

    def affords(
        self, profile: Mapping[str, Any], trials: int = 1, reserve_s: float | None = None, losses: int = 0
    ) -> bool:
        """Whether there is time for so many more of them, and for what is to come after that."""
        kept_s = self.reserve_s(profile) if reserve_s is None else reserve_s
        return self.left_s - trials * self.lasts_s(profile, losses) > kept_s

    def affords_look(self, profile: Mapping[str, Any]) -> bool:
        """Whether there is time to look again under it, and for a trial of what that may show."""
        steps_s = _LOOK_STEPS * self.sizes.step_s / self._speed_up(self.made.timed(profile))
        look_s = self.sizes.start_s + min(self._look_length(profile).seconds, steps_s + self.sizes.late_s(profile))
        return self.left_s - look_s - self.lasts_s(profile) > self.reserve_s(profile)

    def too_long(self, profile: Mapping[str, Any]) -> Message | None:
        """Why no trial of this profile fits into the time there is, if so."""
        # Those that it is tried on top of are as slow as they were measured.
        pauses_s = _PAUSE_TRIALS * self.sizes.seconds_for(profile, self._speed_up(self.made.nearest(profile)))
        if self.to_see(profile) and pauses_s > _PAUSES_SHARE * self.settings.budget_s:
            needed_s = pauses_s / _PAUSES_SHARE
            return message("tried.too_seldom", needed_s=needed_s)
        late_s, most_s = self.sizes.late_s(profile), _EPOCH_SHARE * self.settings.budget_s
        if late_s <= most_s:
            return None
        needed_s = late_s / _EPOCH_SHARE
        return message("tried.begins_late", late_s=late_s, needed_s=needed_s)

    def losses_for(self, profile: Mapping[str, Any]) -> int:
        """Losses of the bare script that reach to where a profile that needs an epoch is in force; 0 for any other."""
        return self.sizes.before(profile) + _MET if waits_an_epoch(profile) else 0

    def _speed_up(self, trials: Sequence[Trial]) -> float:
        """Of these over the bare script; 1.0 where nothing was measured."""
        means_s = [sum(trial.step_s) / len(trial.step_s) for trial in trials if trial.ended_well]
        return max(1.0, self.sizes.step_s / max(1e-6, sum(means_s) / len(means_s))) if means_s else 1.0

    def _most_s(self, profile: Mapping[str, Any]) -> float:
        """A trial that has to see pauses may take longer, and one that has to wait for an epoch waits for it."""
        most_s = min(_LONGEST_S, max(10.0, TRIAL_SHARE * self.settings.budget_s))
        most_s = max(most_s, _LEEWAY_FOR_PAUSES * self.to_see(profile) * self.sizes.step_s)
        later_s = self.sizes.late_s(profile) + self.sizes.settling_s(profile) + self.sizes.begins_s(profile)
        return most_s + later_s

    def _ask(self, profile: Mapping[str, Any], arm: str, length: _Length, **more: Any) -> Trial:
        # Loaders that run alone want more of them than beside a training.
        is_tuned = any(tunes_itself(name, value) for name, value in profile.items()) and not more.get("feeds")
        workers = self._workers if is_tuned else {}
        trial = self._make(_request(self.settings, profile, arm, length, self.sizes.start_s, workers=workers, **more))
        self.made.all.append(trial)
        self._learn_carried(trial)
        if trial.ended_well and is_tuned and (found := workers_found(trial)):
            # The last word counts: what has become faster wants more of them.
            self._workers = found
            self.sizes = replace(self.sizes, is_settled=True)
        return trial


def _request(
    settings: Settings,
    profile: Mapping[str, Any],
    arm: str,
    length: _Length,
    start_s: float = _UNKNOWN_START_S,
    **more: Any,
) -> Request:
    return Request(
        settings.command,
        arm,
        dict(profile),
        steps=length.steps,
        warm_up=length.warm_up,
        seconds=length.seconds,
        limit_s=max(60.0, 3 * (start_s + length.seconds)),
        metric=settings.metric,
        allow_writes=settings.allow_writes,
        **more,
    )


def _look_length(settings: Settings, profile: Mapping[str, Any]) -> _Length:
    seconds = max(_LOOK_LEAST_S, _LOOK_SHARES[bool(profile)] * settings.budget_s)
    return _Length(_LOOK_STEPS, seconds, LOOK_WARM_UP)
