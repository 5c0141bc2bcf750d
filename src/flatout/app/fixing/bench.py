"""Where trials are made: each once, kept by what was in force, within the time there is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flatout.app.fixing.sizes import WARM_UP, Sizes
from flatout.app.plan import Wishes
from flatout.records.trial import Trial
from flatout.trials.request import Request

BARE = "as it is"
CEILING = "ceiling"
NUDGED = "nudged"
# The first look: enough steps for a verdict, and no more than a part of the time there is.
_LOOK_STEPS, _LOOK_SHARE, _LOOK_LEAST_S = 150, 0.1, 4.0
# One trial may take this part of the whole time; there are a dozen or two.
TRIAL_SHARE = 0.08
_HASTY = 0.4
# What loads and brings the batches has no part in a ceiling that is measured without loading them.
_FEEDING = ("loader.", "transfer.prefetch")


@dataclass(frozen=True, slots=True)
class Settings:
    command: tuple[str, ...]
    wishes: Wishes = field(default_factory=Wishes)
    budget_s: float = 600.0
    metric: str | None = None
    higher: bool = True
    allow_writes: bool = False
    # Part of the time that is kept for the proof at the end.
    reserve: float = 0.35


class Bench:
    """Makes trials and keeps them by what was in force, so that none is made twice and all can be compared."""

    def __init__(self, settings: Settings, make: Callable[[Request], Trial]) -> None:
        self.settings = settings
        self._make = make
        self._began_s = time.monotonic()
        self._made: dict[str, list[Trial]] = {}
        self.sizes: Sizes | None = None
        self.all: list[Trial] = []

    @property
    def took_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def left_s(self) -> float:
        return self.settings.budget_s - self.took_s

    def look(self, profile: Mapping[str, Any]) -> Trial:
        """A trial with the lines of the user's code watched, for a diagnosis; its speed is not used."""
        seconds = max(_LOOK_LEAST_S, _LOOK_SHARE * self.settings.budget_s)
        return self._ask(profile, "look", _LOOK_STEPS, seconds, with_lines=True)

    def trial(self, profile: Mapping[str, Any], arm: str, *, again: bool = False) -> Trial:
        """One of this profile: made before, unless it is to be made again."""
        trials = self.of(profile)
        if trials and not again:
            return trials[0]
        made = self._timed(profile, arm, self._speed_up(trials), len(trials))
        if not trials and self._is_hasty(made):
            made = self._timed(profile, arm, self._speed_up([made]), len(trials))
        self._made.setdefault(_key(profile), []).append(made)
        return made

    def _timed(self, profile: Mapping[str, Any], arm: str, speed_up: float, repeat: int) -> Trial:
        assert self.sizes is not None
        steps = self.sizes.steps_for(list(profile), speed_up)
        return self._ask(profile, arm, steps, self._most_s(), repeat=repeat)

    def _is_hasty(self, trial: Trial) -> bool:
        """Whether it was over so soon that batches made ahead of time may have carried it: then a longer one counts."""
        assert self.sizes is not None
        usual_s = (self.sizes.steps - WARM_UP) * self.sizes.step_s
        return trial.ended_well and sum(trial.step_s) < _HASTY * usual_s

    def ceiling(self, profile: Mapping[str, Any]) -> Trial:
        """The same on batches that lie on the device: what is left of the profile then is its arithmetic."""
        kept = {name: value for name, value in profile.items() if not name.startswith(_FEEDING)}
        assert self.sizes is not None
        found = self._made.setdefault(f"{CEILING} {_key(kept)}", [])
        if not found:
            steps = self.sizes.steps_for(list(kept), self._speed_up(self.of(profile)))
            found.append(self._ask(kept, CEILING, steps, self._most_s(), replays=True))
        return found[0]

    def nudged(self) -> Trial:
        """The bare script, its weights moved by about a rounding error: what such differences grow to by themselves."""
        found = self._made.setdefault(NUDGED, [])
        if not found:
            assert self.sizes is not None
            found.append(self._ask({}, NUDGED, self.sizes.steps_for([]), self._most_s(), nudged=True))
        return found[0]

    def of(self, profile: Mapping[str, Any]) -> list[Trial]:
        return self._made.get(_key(profile), [])

    def arms(self) -> list[list[Trial]]:
        return [trials for key, trials in self._made.items() if not key.startswith((CEILING, NUDGED))]

    def affords(self, profile: Mapping[str, Any], trials: int = 1, reserve: float | None = None) -> bool:
        """Whether there is time for so many more of them, and for what is to come after that."""
        assert self.sizes is not None
        steps = self.sizes.steps_for(list(profile))
        each_s = min(self.sizes.seconds_for(steps), self.sizes.start_s + self._most_s())
        kept_s = (self.settings.reserve if reserve is None else reserve) * self.settings.budget_s
        return self.left_s - trials * each_s > kept_s

    def _speed_up(self, trials: Sequence[Trial]) -> float:
        """Of these over the bare script; 1.0 where nothing was measured."""
        assert self.sizes is not None
        means_s = [sum(trial.step_s) / len(trial.step_s) for trial in trials if trial.ended_well]
        return max(1.0, self.sizes.step_s / max(1e-6, sum(means_s) / len(means_s))) if means_s else 1.0

    def _most_s(self) -> float:
        return max(10.0, TRIAL_SHARE * self.settings.budget_s)

    def _ask(self, profile: Mapping[str, Any], arm: str, steps: int, seconds: float, **more: Any) -> Trial:
        settings = self.settings
        start_s = self.sizes.start_s if self.sizes is not None else 60.0
        request = Request(
            settings.command,
            arm,
            dict(profile),
            steps=steps,
            warm_up=WARM_UP,
            seconds=seconds,
            limit_s=max(60.0, 3 * (start_s + seconds)),
            metric=settings.metric,
            allow_writes=settings.allow_writes,
            **more,
        )
        trial = self._make(request)
        self.all.append(trial)
        return trial


def _key(profile: Mapping[str, Any]) -> str:
    return json.dumps(dict(sorted(profile.items())), default=str)
