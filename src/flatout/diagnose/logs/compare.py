"""Two logs side by side, by samples a second: it/s of different batches do not compare."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flatout.records.logs import LogComparison, LogSummary

_DRAWS = 2000
_FLAT = 0.05


def compared(first: LogSummary, second: LogSummary) -> LogComparison | None:
    """The second against the first; None where the two logs tell different things."""
    it_ratio = second.it_per_s / first.it_per_s if first.it_per_s and second.it_per_s else None
    same_batch = first.batch_size == second.batch_size if first.batch_size and second.batch_size else None
    if first.samples_per_s and second.samples_per_s:
        by: Literal["samples/s", "it/s"] = "samples/s"
        ratio = second.samples_per_s / first.samples_per_s
    elif it_ratio is not None:
        by, ratio = "it/s", it_ratio
    else:
        return None
    low, high = _interval(_rates(first), _rates(second), ratio)
    sentence = _sentence(ratio, low, high, by, first, second)
    hint = _hint(ratio, it_ratio, by, same_batch)
    return LogComparison(by, ratio, low, high, it_ratio, same_batch, sentence, hint)


def _rates(log: LogSummary) -> NDArray[np.float64]:
    """Relative to the log's own typical pace, so that the unit plays no part."""
    rates = np.array([point.it_per_s or point.samples_per_s or np.nan for point in log.points])
    rates = rates[np.isfinite(rates)]
    return rates / np.median(rates) if len(rates) else np.ones(1)


def _interval(first: NDArray[np.float64], second: NDArray[np.float64], ratio: float) -> tuple[float, float]:
    """95% by resampling the stretches of both logs."""
    draw = np.random.default_rng(0)
    medians = [np.median(draw.choice(rates, (_DRAWS, len(rates))), axis=1) for rates in (first, second)]
    low, high = np.quantile(ratio * medians[1] / medians[0], [0.025, 0.975])
    return min(ratio, float(low)), max(ratio, float(high))


def _sentence(ratio: float, low: float, high: float, by: str, first: LogSummary, second: LogSummary) -> str:
    change = f"{100 * (ratio - 1):+.1f}%"
    if low <= 1.0 <= high and (low, high) != (1.0, 1.0):
        return f"No clear difference: {change} {by}, within what each log varies by itself"
    faster = "faster" if ratio > 1 else "slower"
    figures = (first.samples_per_s, second.samples_per_s) if by == "samples/s" else (first.it_per_s, second.it_per_s)
    if ratio == 1.0:
        return f"Both logs have the same pace ({figures[0]:.4g} {by})"
    return f"The second log is {abs(100 * (ratio - 1)):.1f}% {faster}: {figures[1]:.4g} against {figures[0]:.4g} {by}"


def _hint(ratio: float, it_ratio: float | None, by: str, same_batch: bool | None) -> str | None:
    if by == "it/s" and same_batch is None:
        return "it/s compare only between equal batches; if they differ, give --batch-size for each file, in order"
    if same_batch is not False or it_ratio is None:
        return None
    words = f"The batches differ: {100 * (it_ratio - 1):+.0f}% it/s says nothing"
    if abs(ratio - 1) <= _FLAT:
        words += (
            ". Equal samples/s at different batches point at the input side rather than the GPU; "
            "`flatout run` on the script tells"
        )
    return words
