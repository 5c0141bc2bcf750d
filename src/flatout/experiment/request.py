"""What a trial is asked for."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from flatout.errors import FlatoutError

# The variable by which a process knows its remedies.
REMEDIES = "FLATOUT_REMEDIES"
# These do not change what a trial comes to.
_NOT_ASKED = ("limit_s", "allow_writes")


@dataclass(frozen=True, slots=True)
class Request:
    """`command` is the user's own, `arm` what the trial stands for.

    It is stopped after `steps` optimizer steps, or `seconds` after the first if that comes sooner. The first `warm_up`
    steps are not counted. `limit_s` is the most it may take in all.
    """

    command: tuple[str, ...]
    arm: str
    remedies: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 60
    warm_up: int = 10
    seconds: float = 300.0
    limit_s: float = 600.0
    # It ends sooner: after the first so many steps, if from the second on so many seconds have passed.
    enough: tuple[int, int, float] | None = None
    # The weights are compared after this step, whenever the trial ends; at its end without.
    digest_at: int | None = None
    # A pattern with one group: its last match in what the script prints is the user's metric.
    metric: str | None = None
    # Config files that the command names, by the copies that take their place.
    files: Mapping[str, str] = field(default_factory=dict)
    knobs: Mapping[str, Any] = field(default_factory=dict)
    # Workers that loaders came to in trials before, by the line that makes them: this one begins with them.
    workers: Mapping[str, int] = field(default_factory=dict)
    # The lines of the user's code are looked at as well: for the run that the diagnosis is made from.
    with_lines: bool = False
    # May the script write its files where it always does?
    allow_writes: bool = False
    # So many batches that lie on the device take the place of all that follow: a ceiling.
    replays: int = 0
    # After a few steps the script's loaders run alone, and their batches are what is timed: the other ceiling.
    feeds: bool = False
    # The weights are moved by this share of themselves after the first step, each trial its own way: a control trial.
    perturbed: float = 0.0
    # So many random numbers are drawn after the first step, and all that are drawn later are others: a control trial.
    reseeded: int = 0
    # Profiles that take turns on top of `remedies` within the one process, by name; None is to go without one of those.
    arms: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    # Steps of each of their turns that are timed; 0 for as many as usual.
    timed: int = 0
    # Steps of each turn before those, at least.
    settling: int = 0
    # Tells trials of one arm apart.
    repeat: int = 0

    @property
    def key(self) -> str:
        """Equal for requests that ask for the same: a search that was cut off finds its finished trials by it."""
        asked = {part.name: getattr(self, part.name) for part in fields(self) if part.name not in _NOT_ASKED}
        return hashlib.blake2b(json.dumps(asked, sort_keys=True, default=_plain).encode(), digest_size=8).hexdigest()


def check_metric(pattern: str | None) -> None:
    """Raises FlatoutError where `--metric` is no pattern with one group."""
    if pattern is None:
        return
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise FlatoutError(f"--metric {pattern!r} is no pattern: {error}") from None
    if groups != 1:
        raise FlatoutError(f"--metric {pattern!r} must have one group around the number, as 'PSNR: ([0-9.]+)'")


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)
