"""What a search has spent its time on: its trials in the order they were made, and the sum of each kind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common.results import table
from flatout.words import english

# Trials of these arms are the same whatever the script is; all others are remedies.
_CONTROLS = ("perturbed weights", "other random numbers")
_KINDS = ("look", "as it is", "ceiling", "loaders alone", *_CONTROLS, "remedies in turns")
_OURS = ("profile", "kept so far", "lossless part")
_BETWEEN = "between trials"


@dataclass(frozen=True, slots=True)
class Spent:
    """One trial. `start_s` is what came before its first step that counts, and after its last."""

    arm: str
    remedies: dict[str, Any]
    ending: str
    why: str
    steps: int
    step_ms: float | None
    start_s: float
    wall_s: float
    # Those of remedies that did not come into force, and why.
    states: dict[str, str]

    @property
    def kind(self) -> str:
        return self.arm if self.arm in (*_KINDS, *_OURS) else "a remedy"


def spent(folder: Path) -> list[Spent]:
    """From the folder of one search, as `flatout fix` leaves it."""
    files = sorted(folder.glob("*/trial.json"), key=lambda file: file.stat().st_mtime_ns)
    return [_spent(json.loads(file.read_text())) for file in files]


def _spent(trial: dict[str, Any]) -> Spent:
    step_s = trial["step_s"]
    return Spent(
        trial["arm"],
        trial["remedies"],
        trial["ending"],
        trial["why"],
        len(step_s),
        1e3 * median(step_s) if step_s else None,
        trial["wall_s"] - sum(step_s),
        trial["wall_s"],
        {one["id"]: f"{one['state']}: {one['why']}" for one in trial["states"] if one["state"] != "applied"},
    )


def each(trials: Sequence[Spent]) -> str:
    rows = [
        [
            trial.arm,
            ", ".join(f"{name}={value}" for name, value in trial.remedies.items()) or "–",
            trial.ending + (f" ({english(trial.why)})" if trial.why else ""),
            str(trial.steps),
            "–" if trial.step_ms is None else f"{trial.step_ms:.4g}",
            f"{trial.start_s:.1f}",
            f"{trial.wall_s:.1f}",
            "; ".join(f"{name} {why}" for name, why in trial.states.items()),
        ]
        for trial in trials
    ]
    return table(["trial", "remedies", "ending", "steps", "ms a step", "start s", "all s", "not in force"], rows)


def by_kind(trials: Sequence[Spent], took_s: float) -> str:
    kinds = list(dict.fromkeys(trial.kind for trial in trials))
    own = {kind: [trial for trial in trials if trial.kind == kind] for kind in kinds}
    rows = [
        [kind, str(len(some)), f"{sum(one.start_s for one in some):.0f}", f"{sum(one.wall_s for one in some):.0f}"]
        for kind, some in own.items()
    ]
    rows.append([_BETWEEN, "", "", f"{took_s - sum(trial.wall_s for trial in trials):.0f}"])
    return table(["kind", "trials", "of it starts, s", "seconds"], rows)
