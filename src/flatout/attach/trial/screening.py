"""Arms that take turns within one process: remedies are switched on and off during training, a few steps at a time.

Two processes differ by chance, and starting one takes long; arms that take turns share one. Each turn first lets its
remedies take effect, then times some steps between two syncs with the device. The order is drawn anew in each round by
our own random generator, so that no arm always follows the same other one; all ranks draw the same order.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

# Steps before timing: a remedy has to find the model and begin, and the bare script has to recover from one. Then the
# steps that are timed.
_SETTLING, _SETTLING_BARE = 7, 3
TIMED = 8
_SEED = 20260


def turn_steps(remedies: Mapping[str, Any], timed: int = TIMED, settling: int = 0) -> int:
    """Steps of a turn of this profile; `settling` of them at least come before those that are timed."""
    return max(settling, _SETTLING if remedies else _SETTLING_BARE) + timed


class Turns(NamedTuple):
    """How long they are, in steps; the training takes `warm_up` steps before the first."""

    warm_up: int
    timed: int = TIMED
    settling: int = 0


class Screening:
    """`arms` are profiles, by name; `make(profile)` gives sites to apply, step and revert.

    A profile that has None for a remedy goes without it, though it is in force in this process: `suspend(names)` sees
    to that.
    """

    def __init__(
        self,
        torch: Any,
        arms: Sequence[tuple[str, Mapping[str, Any]]],
        turns: Turns,
        make: Callable[[Mapping[str, Any]], Any],
        suspend: Callable[[Collection[str]], None],
    ) -> None:
        self._torch = torch
        self._arms = list(arms)
        self._make = make
        self._timed = turns.timed
        self._settling = turns.settling
        self._suspend = suspend
        self._random = random.Random(_SEED)
        self._waiting = turns.warm_up
        self._order: list[int] = []
        self._arm = 0
        self._sites: Any = None
        self._ended: list[Any] = []
        self._step = 0
        self._began_s = 0.0
        # Seconds a step of each turn and the training's steps before it, by arm; what became of each arm's remedies.
        self.seconds: dict[str, list[float]] = {name: [] for name, _ in self._arms}
        self.after: dict[str, list[int]] = {name: [] for name, _ in self._arms}
        self.states: dict[str, dict[str, tuple[str, str]]] = {name: {} for name, _ in self._arms}

    def end_step(self, count: int) -> None:
        """A training step is over: `count` in all."""
        if self._waiting:
            self._waiting -= 1
            if not self._waiting:
                self._next()
            return
        self._step += 1
        if self._sites is not None:
            self._sites.stepped(self._step)
        last, timed = turn_steps(self._arms[self._arm][1], self._timed, self._settling), self._timed
        if self._step == last - timed:
            self._began_s = self._now()
        elif self._step == last:
            self._note((self._now() - self._began_s) / timed, count - timed)
            self._next()

    def tidy(self) -> None:
        """Outside of an optimizer's step: what could not be undone within one is undone now."""
        for sites in self._ended:
            sites.revert()
        self._ended.clear()

    def end(self) -> None:
        if self._sites is not None:
            self._sites.revert()
            self._ended.append(self._sites)
            self._sites = None

    def figures(self) -> dict[str, object]:
        return {"seconds": self.seconds, "after": self.after, "timed": self._timed, "states": self.states}

    def _next(self) -> None:
        self.end()
        if not self._order:
            self._order = list(range(len(self._arms)))
            self._random.shuffle(self._order)
        self._arm = self._order.pop()
        self._step = 0
        remedies = self._arms[self._arm][1]
        self._suspend([name for name, value in remedies.items() if value is None])
        added = {name: value for name, value in remedies.items() if value is not None}
        if added:
            self._sites = self._make(added)
            self._sites.apply()

    def _note(self, step_s: float, after: int) -> None:
        name, remedies = self._arms[self._arm]
        sites = self._sites.all if self._sites is not None else ()
        self.states[name] |= {remedy.id: (site.state, site.plain_why) for remedy, _, site in sites}
        added = [remedy for remedy, value in remedies.items() if value is not None]
        if all(self.states[name].get(remedy, ("", ""))[0] == "applied" for remedy in added):
            self.seconds[name].append(step_s)
            self.after[name].append(after)

    def _now(self) -> float:
        """When the device, too, is done with the steps so far."""
        if self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()
        return time.perf_counter()
