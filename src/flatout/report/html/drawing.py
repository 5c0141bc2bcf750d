"""Our own drawings as plain figures for the templates: where each rectangle and line goes.

Widths are percentages or units of a view box, never style attributes: the page's policy forbids those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flatout.records.report import PHASES, LineCost, PhaseShare, RunReport
from flatout.records.timeline import Curves, StepTimes, Timeline
from flatout.report import text

# Of the bar: narrower blocks have no room for words, and lines below it are not worth a block.
_WORDS_FROM = 4.0
_LEAST_LINE = 0.004
_WIDTH, _HEIGHT = 300, 70


@dataclass(frozen=True, slots=True)
class Block:
    """A block of the bar: place and width in percent of it."""

    x: float
    width: float
    row: int
    css: str
    label: str
    detail: str


@dataclass(frozen=True, slots=True)
class Bar:
    id: str
    rows: int
    blocks: tuple[Block, ...]


def phase_bar(report: RunReport, name: str = "bar", length: float = 1.0) -> Bar:
    """The step, its phases below it in their order, and below each phase the lines of code that it was seen under.

    `length` is that of the bar, of all the room there is: two bars side by side are as long as their steps.
    """
    step_ms = sum(phase.ms for phase in report.phases.values())
    blocks = [Block(0.0, _short(100 * length), 0, "whole", text.milliseconds(step_ms), _detail("step", 1.0, step_ms))]
    at = 0.0
    rows = 2
    for phase in (name for name in PHASES if report.phases.get(name, PhaseShare(0, 0)).share > 0):
        share = report.phases[phase]
        width = 100 * share.share * length
        label = f"{phase} {text.percent(share.share)}" if width >= _WORDS_FROM else ""
        blocks.append(
            Block(_short(at), _short(width), 1, f"phase-{phase}", label, _detail(phase, share.share, share.ms))
        )
        found = _lines(report.lines, phase, at, width, length)
        rows = 3 if found else rows
        blocks += found
        at += width
    return Bar(name, rows, tuple(blocks))


def _lines(costs: Sequence[LineCost], phase: str, at: float, room: float, length: float) -> list[Block]:
    blocks = []
    end = at + room
    for cost in (line_cost for line_cost in costs if line_cost.phase == phase and line_cost.share >= _LEAST_LINE):
        width = min(100 * cost.share * length, end - at)
        if width <= 0:
            break
        where = f"{cost.location.file.rsplit('/', 1)[-1]}:{cost.location.line}"
        detail = f"{where} {cost.function} · {_detail(phase, cost.share, cost.ms)}"
        label = where if width >= _WORDS_FROM else ""
        blocks.append(Block(_short(at), _short(width), 2, f"of-line phase-{phase}", label, detail))
        at += width
    return blocks


def _detail(name: str, share: float, ms: float) -> str:
    return f"{name} · {text.percent(share)} · {text.milliseconds(ms)}"


def _short(value: float) -> float:
    return round(value, 3)


@dataclass(frozen=True, slots=True)
class Rect:
    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bars over a logarithmic axis from `low` to `high`."""

    width: int
    height: int
    bars: tuple[Rect, ...]
    label: str
    low: str
    high: str
    median: str
    p95: str
    p99: str
    longest: str


def histogram(times: StepTimes) -> Histogram:
    """Heights by the square root of the counts, so that one slow step among thousands is still seen."""
    most = math.sqrt(max(times.counts) or 1)
    each = _WIDTH / len(times.counts)
    bars = []
    for at, count in enumerate(times.counts):
        if count:
            height = max(1.5, _HEIGHT * math.sqrt(count) / most)
            ends = f"{text.milliseconds(times.edges_ms[at])} – {text.milliseconds(times.edges_ms[at + 1])}"
            bars.append(
                Rect(
                    _short(at * each),
                    _short(_HEIGHT - height),
                    _short(each * 0.86),
                    _short(height),
                    f"{ends}: {count:,}",
                )
            )
    percentiles = {"median": times.median_ms, "p95": times.p95_ms, "p99": times.p99_ms, "longest": times.longest_ms}
    said = {name: text.milliseconds(value) for name, value in percentiles.items()}
    label = ", ".join(f"{name} {value}" for name, value in said.items())
    low, high = text.milliseconds(times.edges_ms[0]), text.milliseconds(times.edges_ms[-1])
    return Histogram(_WIDTH, _HEIGHT, tuple(bars), label, low, high, **said)


# The timeline of a run, as the script that draws it wants it.

# In this order down the page: the chart's name and the unit of its axis.
_CHARTS = (
    ("gpu", "share"),
    ("starved", "share"),
    ("phases", "share"),
    ("step", "ms"),
    ("rate", "rate"),
    ("queue", "count"),
    ("gpu_memory", "bytes"),
    ("memory", "bytes"),
    ("cpu", "share"),
    ("tree_cpu", "cores"),
    ("tree_memory", "bytes"),
    ("disk", "bytes_per_s"),
)
_STACKED = ("phases", "tree_cpu", "tree_memory")


def chart_data(timeline: Timeline | None) -> dict[str, Any]:
    """Nothing of it where there is no timeline."""
    if timeline is None:
        return {"end_s": 0, "charts": [], "marks": []}
    return {
        "end_s": timeline.end_s,
        "charts": [
            _chart(name, unit, timeline.curves[name], timeline.limits.get(name))
            for name, unit in _CHARTS
            if name in timeline.curves and len(timeline.curves[name].t_s) > 1
        ],
        "marks": [[mark.phase, mark.start_s, mark.end_s, mark.count] for mark in timeline.marks],
    }


def _chart(name: str, unit: str, curves: Curves, limit: float | None) -> dict[str, Any]:
    names = [phase for phase in PHASES if phase in curves.values] if name == "phases" else list(curves.values)
    return {
        "name": name,
        "unit": unit,
        "stacked": name in _STACKED,
        "limit": limit,
        "t_s": curves.t_s,
        "series": [{"name": curve, "values": curves.values[curve]} for curve in names],
    }
