"""What a run measured of a finding in source, in words and for machines."""

from __future__ import annotations

from typing import Any

from flatout.records.source import Measured, MeasuredRun
from flatout.report import text
from flatout.words import english


def in_short(measured: Measured, run: MeasuredRun) -> str:
    """`3.10 ms of 48.0 ms a step`, `free: 20 µs of 48.0 ms a step`, `not reached`."""
    amount = _amount(measured, run)
    if measured.state == "costs":
        return amount or "yes, but not in time"
    if measured.state == "free":
        return f"free: {amount}"
    return measured.state.replace("_", " ")


def in_words(measured: Measured, run: MeasuredRun) -> str:
    """The same with what there is to say about it."""
    amount = _amount(measured, run)
    if measured.state == "costs":
        said = f"{amount} ({text.percent(measured.share or 0.0)})" if amount else ""
    elif measured.state == "free":
        said = f"free in this run, {amount}"
    else:
        said = "not reached in this run" if measured.state == "not_reached" else "not in this run"
    return ": ".join(part for part in (said, english(measured.words)) if part)


def to_dict(measured: Measured | None, words: str | None = None) -> dict[str, Any] | None:
    """`words` are those to write instead of the message."""
    if measured is None:
        return None
    return {
        "state": measured.state,
        "ms_per_step": _rounded(measured.ms_per_step),
        "share": _rounded(measured.share),
        "words": measured.words if words is None else words,
    }


def run_to_dict(run: MeasuredRun | None) -> dict[str, Any] | None:
    return None if run is None else {"id": run.id, "step_ms": _rounded(run.step_ms), "device": run.device}


def _amount(measured: Measured, run: MeasuredRun) -> str:
    if measured.ms_per_step is None:
        return ""
    return f"{text.milliseconds(measured.ms_per_step)} of {text.milliseconds(run.step_ms)} a step"


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
