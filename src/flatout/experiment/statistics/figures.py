"""Gains as they stand in a sentence."""

from __future__ import annotations

from flatout.records.proof import MeasuredGain


def percent(ratio: float) -> str:
    """1.051 → +5.1%; what is more than twice is easier to read as ×2.3."""
    return f"×{ratio:.3g}" if ratio >= 2.0 else f"{100 * (ratio - 1):+.1f}%"


def with_interval(gain: MeasuredGain) -> str:
    return f"{percent(gain.mid)} ({percent(gain.low)} … {percent(gain.high)})"
