"""What `flatout logs` shows: speed, its course, data, pauses, and two logs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from flatout.records.logs import SCHEMA, LogComparison, LogSummary, Pauses
from flatout.report import text
from flatout.report.layout import LABEL, Look, add_label, draw_lines, wrap_sentence
from flatout.words import english
from flatout.words.codec import encode

_LEVELS = "▁▂▃▄▅▆▇█"
_PLAIN_LEVELS = "_.-:=+*#"


def to_json(logs: Sequence[LogSummary], comparison: LogComparison | None) -> dict[str, Any]:
    return encode({"schema": SCHEMA, "logs": logs, "comparison": comparison})


def render(
    logs: Sequence[LogSummary],
    comparison: LogComparison | None,
    look: Look,
) -> str:
    """The page; quiet, it has only the sentence that matters."""
    lines: list[Text] = []
    if not look.quiet:
        for log in logs:
            lines += [Text(), *_log(log, look)]
    if comparison is not None:
        lines += [*([] if look.quiet else [Text()]), *_comparison(comparison, look.width)]
    elif look.quiet:
        lines += [Text(f"{log.file}: {_speed(log)}") for log in logs]
    return draw_lines(lines, look.width, look.color, look.unicode)


def _log(log: LogSummary, look: Look) -> Iterator[Text]:
    width = look.width
    facts = [text.clean(log.file), log.format, f"{log.readings:,} reading{'s' if log.readings != 1 else ''}"]
    if log.last_step is not None:
        facts.append(f"steps {log.first_step:,.0f} to {log.last_step:,.0f}")
    if log.duration_s:
        facts.append(text.duration(log.duration_s))
    yield Text(" " + " · ".join(facts), "bold")
    yield Text()
    yield from wrap_sentence("Speed", _speed(log) + _of_batch(log), width)
    if _worth_both(log):
        whole = log.whole_samples_per_s or log.whole_it_per_s or 0.0
        unit = "samples/s" if log.whole_samples_per_s else "it/s"
        yield from wrap_sentence("", f"{text.figure(whole)} {unit} over the whole log, pauses included", width)
    yield from _course(log, width, look.unicode)
    if log.trend is not None:
        yield from wrap_sentence("Trend", _trend(log), width)
    if log.data_share is not None and log.data_ms is not None:
        of = "" if log.step_ms is None else f" ({text.milliseconds(log.data_ms)} of {text.milliseconds(log.step_ms)})"
        yield from wrap_sentence(
            "Data", f"{text.percent(log.data_share)} of the step waits for data{of}, according to the log", width
        )
    for number, pauses in enumerate(log.pauses):
        yield from wrap_sentence("Pauses" if number == 0 else "", _pauses(pauses), width)
    if look.verbose:
        for stall in log.stalls[:20]:
            at = "" if stall.step is None else f" before step {stall.step:,.0f}"
            yield from wrap_sentence("", f"{text.duration(stall.lost_s)}{at} (line {stall.line}, {stall.kind})", width)
    if log.last_loss is not None and log.first_loss is not None:
        yield from wrap_sentence("Loss", f"{log.first_loss:.4g} to {log.last_loss:.4g}", width)


def _speed(log: LogSummary) -> str:
    parts = []
    if log.samples_per_s is not None:
        parts.append(f"{text.figure(log.samples_per_s)} samples/s")
    if log.it_per_s is not None:
        parts.append(f"{text.figure(log.it_per_s)} it/s")
    if log.step_ms is not None:
        parts.append(f"{text.milliseconds(log.step_ms)} per step")
    return " · ".join(parts)


def _of_batch(log: LogSummary) -> str:
    if log.batch_size is not None:
        return f" (batch {log.batch_size:g}: {english(log.batch_from or '')})"
    if log.samples_per_s is None:
        return " (give --batch-size for samples/s)"
    return ""


def _worth_both(log: LogSummary) -> bool:
    if log.whole_it_per_s is None or log.it_per_s is None:
        return False
    return abs(log.whole_it_per_s / log.it_per_s - 1) > 0.02


def _course(log: LogSummary, width: int, unicode: bool) -> Iterator[Text]:
    paces = (point.it_per_s if point.samples_per_s is None else point.samples_per_s for point in log.points)
    rates = [rate for rate in paces if rate is not None]
    if len(rates) < 4:
        return
    cells = min(len(rates), max(10, width - LABEL - 34), 60)
    part = [
        rates[at * len(rates) // cells : max(at * len(rates) // cells + 1, (at + 1) * len(rates) // cells)]
        for at in range(cells)
    ]
    means = [sum(some) / len(some) for some in part]
    levels, most = (_LEVELS if unicode else _PLAIN_LEVELS), max(means)
    line = "".join(levels[min(7, int(8 * mean / most))] for mean in means)
    unit = "samples/s" if log.points[0].samples_per_s is not None else "it/s"
    words = f" {text.figure(min(means))} to {text.figure(most)} {unit}"
    yield add_label("Over time", Text(line, "cyan") + Text(words))


def _trend(log: LogSummary) -> str:
    assert log.trend is not None
    if log.trend.steady:
        return "steady"
    return f"{100 * log.trend.change:+.0f}% from start to end, pauses excluded"


def _pauses(pauses: Pauses) -> str:
    name = {"evaluation": "evaluation", "checkpoint": "checkpoint", "pause": "unexplained"}[pauses.kind]
    often = f"{pauses.count} time{'s' if pauses.count != 1 else ''}"
    rhythm = f", every {pauses.every_steps:,.0f} steps" if pauses.every_steps else ""
    share = "" if pauses.share is None else f", {text.percent(pauses.share)} of the time"
    longest = f"; longest {text.duration(pauses.longest_s)} at line {pauses.longest_line}" if pauses.count > 1 else ""
    return f"{name}: {often}{rhythm}, {text.duration(pauses.mean_s)} each{share}{longest}"


def _comparison(comparison: LogComparison, width: int) -> Iterator[Text]:
    ends = f" (95% interval {100 * (comparison.low - 1):+.1f}% to {100 * (comparison.high - 1):+.1f}%)"
    wide = comparison.low != comparison.high
    yield from wrap_sentence("Compared", english(comparison.sentence) + (ends if wide else ""), width)
    if comparison.hint:
        yield from wrap_sentence("", comparison.hint, width)
