"""The summary of ticks already taken."""

from __future__ import annotations

from collections.abc import Iterable

from flatout.records.sample import MonitorSummary, Tick
from flatout.telemetry.monitor import MonitorTotals


def summarise_ticks(ticks: Iterable[Tick]) -> MonitorSummary:
    totals = MonitorTotals()
    for tick in ticks:
        totals.add(tick)
    return totals.summary()
