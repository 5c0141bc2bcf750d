"""The trials of a search that were made, by what was in force in them: none is made twice, and all can be compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from flatout.experiment.statistics.intervals import calibrate_near, is_known
from flatout.experiment.statistics.rates import count_alike, even_out_steps
from flatout.records.proof import By, Spread
from flatout.records.trial import Trial

# Of the steps that a trial was to see, some may be left out for other reasons.
_NEARLY = 0.8


class TrialKind(Enum):
    """What a trial is made for."""

    PROFILE = "profile"
    # On batches that are on the device already.
    CEILING = "ceiling"
    LOADERS_ALONE = "loaders alone"
    # Control trials: other numbers from the second step on. They are as fast as any other trial of their profile.
    PERTURBED = "perturbed"
    RESEEDED = "reseeded"


_CONTROLS = (TrialKind.PERTURBED, TrialKind.RESEEDED)


@dataclass(frozen=True, slots=True)
class TrialKey:
    """`profile` as canonical JSON; `by` is the share that weights are perturbed by."""

    kind: TrialKind
    profile: str
    by: float = 0.0

    @classmethod
    def of(cls, profile: Mapping[str, Any], kind: TrialKind = TrialKind.PROFILE, by: float = 0.0) -> TrialKey:
        return cls(kind, json.dumps(dict(sorted(profile.items())), default=str), by)


class TrialStore:
    def __init__(self) -> None:
        self._by_key: dict[TrialKey, list[Trial]] = {}
        # In the order in which they were made; looks and trials with arms in turns too, which have no key.
        self.all: list[Trial] = []

    def get(self, key: TrialKey) -> list[Trial]:
        return list(self._by_key.get(key, ()))

    def add(self, key: TrialKey, trial: Trial) -> None:
        self._by_key.setdefault(key, []).append(trial)

    def of(self, profile: Mapping[str, Any]) -> list[Trial]:
        """Those of a profile itself."""
        return self.get(TrialKey.of(profile))

    def perturbed(self, profile: Mapping[str, Any], by: float) -> list[Trial]:
        """Those whose weights were moved by such a share: what such differences grow to by themselves."""
        return self.get(TrialKey.of(profile, TrialKind.PERTURBED, by))

    def reseeded(self) -> list[Trial]:
        """Those of the bare script with other random numbers from its second step on."""
        return self.get(TrialKey.of({}, TrialKind.RESEEDED))

    def timed(self, profile: Mapping[str, Any], steps: int = 0) -> list[Trial]:
        """All whose speed is this profile's, its controls too; of those that were to see pauses, with such steps."""
        own = TrialKey.of(profile)
        controls = [
            trials for key, trials in self._by_key.items() if key.kind in _CONTROLS and key.profile == own.profile
        ]
        every = [trial for trials in (self.of(profile), *controls) for trial in trials]
        return self.alike([trial for trial in every if len(trial.step_s) >= _NEARLY * steps])

    def alike(self, trials: Sequence[Trial]) -> list[Trial]:
        """As they are counted beside all others that were made."""
        others = [
            trial for key, trials in self._by_key.items() if key.kind is not TrialKind.LOADERS_ALONE for trial in trials
        ]
        return count_alike(trials, others)

    def nearest(self, profile: Mapping[str, Any]) -> list[Trial]:
        """Its trials, or those of what is nearest to it: most of it, and nothing else."""
        parts = [part for part in self._profiles() if part.items() <= dict(profile).items()]
        return self.timed(max(parts, key=len)) if parts else []

    def spread(self, under: Mapping[str, Any], steps: int = 0, by: By = "blocks", evenly: bool = False) -> Spread:
        """What profiles that hold `under` differ by when run again. `evenly`: in their pauses alone."""
        near, every = (self._arms(part, steps) for part in (under, {}))
        if evenly:
            near, every = even_out_steps(near), even_out_steps(every)
        return calibrate_near(near, every, by)

    def knows_spread(self, under: Mapping[str, Any], steps: int = 0) -> bool:
        """Whether that is known from such profiles alone."""
        return is_known(self._arms(under, steps))

    def _arms(self, under: Mapping[str, Any], steps: int) -> list[list[Trial]]:
        profiles = [profile for profile in self._profiles() if dict(under).items() <= profile.items()]
        return [self.timed(profile, steps) for profile in profiles]

    def _profiles(self) -> list[dict[str, Any]]:
        return [json.loads(key.profile) for key in self._by_key if key.kind is TrialKind.PROFILE]
