"""The page of a comparison: speeds with their intervals on one axis, phases to one scale, settings, findings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from flatout.records.comparison import Arm, Compared, Comparison, PhaseChange
from flatout.records.message import Message
from flatout.records.proof import MeasuredGain
from flatout.records.report import Finding
from flatout.report import text
from flatout.report.html.drawing import Bar, Block, chart_data
from flatout.report.html.page import Page, say, show

_TICKS = (0.1, 0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
_CSS = {"faster": "is-good", "slower": "", "no sure difference": "is-open", "not measured": "is-open"}
_STATE = {"faster": "kept", "slower": "harmful"}
_ABSENT = "–"


def compare_page(compared: Compared) -> Page:
    at, ticks = _axis(compared)
    names = [compared.baseline.name, *(comparison.after.name for comparison in compared.comparisons)]
    title = f"{names[0]} → {', '.join(names[1:])}"
    gate = compared.gate
    return Page(
        template="compare.html",
        title=f"flatout compare · {title}",
        kind=title,
        context={
            "rows": [
                _row(compared.baseline, None, at),
                *(_row(comparison.after, comparison, at) for comparison in compared.comparisons),
            ],
            "one_at": at(1.0),
            "ticks": ticks,
            "gate": None if gate is None else {"failed": ", ".join(gate.failed), "least": f"{100 * gate.least:.4g}%"},
            "disturbed": compared.disturbed,
            "pairs": [_pair(comparison, number) for number, comparison in enumerate(compared.comparisons)],
        },
        data=chart_data(None),
    )


def _axis(compared: Compared) -> tuple[Callable[[float], float], list[tuple[float, str]]]:
    """A logarithmic axis that holds every interval, and 1 in any case."""
    gains = [
        gain
        for comparison in compared.comparisons
        for gain in (comparison.gain, comparison.ordinary_gain)
        if gain is not None
    ]
    low = min([0.95, *(max(gain.low, 1e-3) for gain in gains)]) * 0.97
    high = max([1.05, *(gain.high for gain in gains)]) * 1.03

    def at(value: float) -> float:
        place = math.log(max(value, 1e-3) / low) / math.log(high / low)
        return round(100 * min(1.0, max(0.0, place)), 2)

    ticks = [tick for tick in _TICKS if low < tick < high]
    # Words need room: of close neighbours only those that stand apart.
    shown: list[tuple[float, str]] = []
    for tick in sorted(ticks, key=lambda gain: gain != 1.0):
        if all(abs(at(tick) - place) > 7 for place, _ in shown):
            shown.append((at(tick), f"×{tick:g}"))
    return at, sorted(shown)


def _row(arm: Arm, comparison: Comparison | None, at: Callable[[float], float]) -> dict[str, Any]:
    """One arm of the speeds; places of its two intervals are in percent of the axis."""
    gain, ordinary = (None, None) if comparison is None else (comparison.gain, comparison.ordinary_gain)
    return {
        "name": arm.name,
        "cells": (
            text.told(arm.samples_per_s, text.figure),
            text.told(arm.steps_per_s, text.figure),
            text.told(arm.step_ms, text.milliseconds),
            _ABSENT if arm.samples_per_step is None else f"{arm.samples_per_step:.4g}",
            "CPU" if arm.device == "cpu" else arm.device,
            say(f"compare_bound_{arm.bound}"),
        ),
        "state": "" if comparison is None else _STATE.get(comparison.judgement, ""),
        "whole": _places(gain, at),
        "ordinary": _places(ordinary, at),
        "figure": "" if gain is None else text.with_interval(gain, 3),
        "ordinary_figure": "" if ordinary is None else text.with_interval(ordinary, 3),
    }


def _places(gain: MeasuredGain | None, at: Callable[[float], float]) -> tuple[float, float, float] | None:
    return None if gain is None else (at(gain.low), at(gain.mid), at(gain.high))


def _pair(comparison: Comparison, number: int) -> dict[str, Any]:
    by_sample = not comparison.same_batch and all(change.us_per_sample is not None for change in comparison.phases)
    lengths = [sum(change.ms_of(by_sample)[side] for change in comparison.phases) for side in (0, 1)]
    longest = max([*lengths, 1e-9])
    return {
        "id": f"pair-{number}",
        "before": comparison.before,
        "after": comparison.after,
        "judgement": comparison.judgement.replace(" ", "_"),
        "css": _CSS[comparison.judgement],
        "sentence": show(comparison.sentence),
        "gain": None if comparison.gain is None else f"×{comparison.gain.mid:.2f}",
        "by_sample": by_sample,
        "bars": [
            (arm.name, _bar(comparison.phases, side, by_sample, f"bar-{number}-{side}", longest))
            for side, arm in enumerate((comparison.before, comparison.after))
        ],
        "phases": [_phase(change, by_sample) for change in comparison.phases],
        "settings": [
            (change.group, change.name, _shown(change.before), _shown(change.after)) for change in comparison.settings
        ],
        "findings": [
            (kind, [_finding(finding) for finding in found])
            for kind, found in (("gone", comparison.gone), ("new", comparison.new), ("stayed", comparison.stayed))
            if found
        ],
        "notices": comparison.notices,
    }


def _bar(phases: Sequence[PhaseChange], side: int, by_sample: bool, name: str, longest: float) -> Bar:
    """As long as its step, of the longer of the two."""
    at, blocks = 0.0, []
    for change in phases:
        ms = change.ms_of(by_sample)[side]
        width = 100 * ms / longest
        if width <= 0:
            continue
        share = text.percent(change.share[side])
        label = f"{change.phase} {share}"
        detail = f"{change.phase} · {share} · {text.milliseconds(ms)}"
        blocks.append(
            Block(
                round(at, 3), round(width, 3), 0, f"phase-{change.phase}", label if width > len(label) else "", detail
            )
        )
        at += width
    return Bar(name, 1, tuple(blocks))


def _phase(change: PhaseChange, by_sample: bool) -> dict[str, Any]:
    before, after = change.ms_of(by_sample)
    difference = after - before
    is_same = abs(difference) < 0.0005
    return {
        "phase": change.phase,
        "before": text.milliseconds(before),
        "before_share": text.percent(change.share[0]),
        "after": text.milliseconds(after),
        "after_share": text.percent(change.share[1]),
        "difference": None if is_same else f"{'+' if difference > 0 else '-'}{text.milliseconds(abs(difference))}",
        "css": "" if is_same else "state-harmful" if difference > 0 else "state-kept",
    }


def _shown(value: object) -> str:
    if value is None:
        return _ABSENT
    return " ".join(str(item) for item in value) if isinstance(value, list | tuple) else str(value)


def _finding(finding: Finding) -> tuple[str, str, str, Message]:
    place = "" if finding.location is None else f"{finding.location.file}:{finding.location.line}"
    return finding.code, finding.title, place, finding.cause
