"""The timeline of a run as the script that draws it wants it."""

from __future__ import annotations

from typing import Any

from flatout.records.phases import PHASES
from flatout.records.timeline import Curves, Timeline

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
    names = [one for one in PHASES if one in curves.values] if name == "phases" else list(curves.values)
    return {
        "name": name,
        "unit": unit,
        "stacked": name in _STACKED,
        "limit": limit,
        "t_s": curves.t_s,
        "series": [{"name": one, "values": curves.values[one]} for one in names],
    }
