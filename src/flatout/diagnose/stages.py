"""What each stage of the model takes of a step, from the sampled steps of the first rank that has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from flatout.diagnose.ranks import Rank
from flatout.records.report import StageCost
from flatout.store.recording import Recording

# A mean over fewer steps tells little.
_FEWEST_SAMPLES = 2
# Where the stages' figures come to more than the step, their share of it is all there is.
_MOST_SHARE = 0.99


def stage_costs(ranks: Sequence[Rank], step_ms: float | None) -> tuple[StageCost, ...] | None:
    """None where nobody asked for them, or nothing could be measured."""
    for rank in ranks:
        told = _last_told(rank.recording)
        if told is not None and rank.recording.count("stage"):
            costs = tuple(_costs(rank, told["stages"], step_ms))
            if costs:
                return costs
    return None


def stage_notices(ranks: Sequence[Rank]) -> tuple[str, ...]:
    """What is not in the table of stages, and why."""
    lines: list[str] = []
    for rank in ranks[:1]:
        told = _last_told(rank.recording) or {}
        lines += [f"stages: {name} left out ({why})" for name, why in sorted(told.get("left_out", {}).items())]
        further = " any further" if rank.recording.count("stage") else ""
        lines += [f"stages not measured{further}: {why}" for why in rank.recording.values("stages_stopped")]
    return tuple(dict.fromkeys(lines))


def _last_told(recording: Recording) -> dict[str, Any] | None:
    """The stages as they were in the end: a large one may have been divided after the first samples."""
    told = [value for value in recording.values("stages") if isinstance(value, dict)]
    return told[-1] if told else None


def _costs(rank: Rank, stages: Sequence[dict[str, Any]], step_ms: float | None) -> Iterator[StageCost]:
    recording = rank.recording
    columns = {name: recording.column("stage", name) for name in ("index", "stage", "calls")}
    forward = np.asarray(recording.column("stage", "forward_ms"), np.float64)
    backward = np.asarray(recording.column("stage", "backward_ms"), np.float64)
    steady = columns["index"] >= _first_steady(rank)
    for stage in stages:
        of_stage = (columns["stage"] == stage["id"]) & np.isfinite(forward)
        # A run so short that no sample fell into its steady part has at least these.
        chosen = of_stage & steady if (of_stage & steady).sum() >= _FEWEST_SAMPLES else of_stage
        if chosen.sum() < _FEWEST_SAMPLES:
            continue
        seen = backward[chosen][np.isfinite(backward[chosen])]
        forward_ms, backward_ms = float(forward[chosen].mean()), float(seen.mean()) if len(seen) else None
        ms = forward_ms + (backward_ms or 0.0)
        share = min(_MOST_SHARE, ms / step_ms) if step_ms else None
        yield StageCost(
            name=str(stage["name"]),
            module=str(stage["module"]),
            parameters=int(stage["parameters"]),
            forward_ms=forward_ms,
            backward_ms=backward_ms,
            share=share,
            if_free=None if share is None else 1 / (1 - share),
            if_twice=None if share is None else 1 / (1 - share / 2),
            calls_per_step=float(columns["calls"][chosen].mean()),
            samples=int(chosen.sum()),
        )


def _first_steady(rank: Rank) -> int:
    if not len(rank.steady):
        return 0
    return int(rank.steady.index[0]) - int(rank.steady.count[0]) + 1
