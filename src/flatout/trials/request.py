"""What a trial is asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
    # A pattern with one group: its last match in what the script prints is the user's metric.
    metric: str | None = None
    # Config files that the command names, by the copies that take their place.
    files: Mapping[str, str] = field(default_factory=dict)
    knobs: Mapping[str, Any] = field(default_factory=dict)
    # The lines of the user's code are looked at as well: for the run that the diagnosis is made from.
    with_lines: bool = False
    # May the script write its files where it always does?
    allow_writes: bool = False
    # Batches that lie on the device take the place of the loader's: a ceiling.
    replays: bool = False
    # Tells trials of one arm apart.
    repeat: int = 0

    @property
    def key(self) -> str:
        """Equal for requests that ask for the same: a search that was cut off finds its finished trials by it."""
        asked = {
            "command": self.command, "arm": self.arm, "remedies": dict(self.remedies), "steps": self.steps,
            "warm_up": self.warm_up, "seconds": self.seconds, "files": dict(self.files), "knobs": dict(self.knobs), "repeat": self.repeat,
            "metric": self.metric, "lines": self.with_lines, "replays": self.replays,
        }  # fmt: skip
        return hashlib.blake2b(json.dumps(asked, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()
