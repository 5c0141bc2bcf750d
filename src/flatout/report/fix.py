"""What `flatout fix` shows: before and after, every remedy with its figures, the quality, and what was written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from flatout.records.fix import SCHEMA, Fix, Plan, Planned, Quality, Tried
from flatout.records.message import message
from flatout.records.proof import Hours, MeasuredGain
from flatout.report.layout import add_label, draw_lines, separate_parts, wrap_sentence
from flatout.report.overview import ladder_rungs
from flatout.report.text import clean, figure, milliseconds, with_interval
from flatout.words import english
from flatout.words.codec import encode

_STYLE = {"kept": "bold green", "harmful": "red", "failed": "red", "refused": "yellow"}
# Bounds that are so many times apart say nothing.
_UNSURE = 20.0
_COLUMNS = ("remedy", "class", "predicted", "measured", "")


def to_json(fix: Fix) -> dict[str, Any]:
    return {"schema": SCHEMA, **encode(fix, only_finite=False)}


def render(fix: Fix, *, width: int, color: bool, unicode: bool, verbose: bool = False) -> str:
    first = [] if fix.disturbed is None else wrap_sentence("DISTURBED", fix.disturbed, width, "bold yellow")
    parts = [first, list(_speed(fix, width)), list(_table(fix.tried, width)), list(_quality(fix, width))]
    parts.append(list(_why(fix, width, verbose)))
    return draw_lines(separate_parts(parts), width, color, unicode)


def render_plan(plan: Plan, *, width: int, color: bool, unicode: bool) -> str:
    """For `--dry-run`."""
    lines: list[Text] = []
    if plan.remedies:
        lines.append(Text(" Remedies to try, in this order", "bold"))
        for planned in plan.remedies:
            lines += wrap_sentence(
                planned.priority,
                f"{remedy_with_value(planned)} ({planned.safety}, {_prediction(planned)}): {english(planned.why)}",
                width,
            )
    else:
        lines.append(Text(" No remedy applies to this run: nothing to try."))
    left = [
        line
        for left_out in plan.left_out
        for line in wrap_sentence("", f"{left_out.id}: {english(left_out.why)}", width)
    ]
    parts = [lines, [Text(" Not tried", "bold"), *left] if left else []]
    return draw_lines(separate_parts(parts), width, color, unicode)


def _speed(fix: Fix, width: int) -> Iterator[Text]:
    unit = f"{fix.unit}s/s"
    if fix.before_per_s is not None:
        yield add_label("Before", Text(f"{figure(fix.before_per_s)} {unit}{_hours(fix.hours_before)}"))
    if fix.after_per_s is not None and fix.profile:
        yield add_label("After", Text(f"{figure(fix.after_per_s)} {unit}{_hours(fix.hours_after)}", "bold green"))
        if fix.gain is not None:
            yield add_label("Gain", Text(f"{gain_with_bounds(fix.gain)}", "bold green"))
    if not fix.profile:
        yield from wrap_sentence("", message("page.fix_healthy"), width)
    if fix.ceiling is not None:
        yield from wrap_sentence("Ceiling", fix.ceiling.sentence, width)
    if fix.ladder is not None:
        rungs = " · ".join(f"{english(name)} {milliseconds(ms)}" for name, ms in ladder_rungs(fix.ladder))
        yield from wrap_sentence("Ladder", rungs, width)


def _table(tried: Sequence[Tried], width: int) -> Iterator[Text]:
    if not tried:
        return
    rows = [
        (
            remedy_with_value(attempt.planned),
            attempt.planned.safety,
            f"×{attempt.planned.predicted.mid:.2f}" if attempt.planned.predicted is not None else "–",
            gain_with_bounds(attempt.gain) if attempt.gain is not None else "–",
            f"kept ({attempt.priority} impact)" if attempt.state == "kept" else attempt.outcome,
        )
        for attempt in tried
    ]
    widths = [max(len(row[at]) for row in (_COLUMNS, *rows)) for at in range(len(_COLUMNS))]
    yield Text(" " + "  ".join(word.ljust(room) for word, room in zip(_COLUMNS, widths, strict=True)), "bold")
    for row, attempt in zip(rows, tried, strict=True):
        words = "  ".join(clean(word).ljust(room) for word, room in zip(row[:-1], widths, strict=False))
        yield Text.assemble(" ", words, "  ", (row[-1], _STYLE.get(attempt.state, "")))
        if attempt.state not in ("kept", "outdone", "neutral"):
            yield from wrap_sentence("", attempt.why, width)
        elif attempt.together:
            yield from wrap_sentence("", f"together with {', '.join(attempt.together)}", width)


def _quality(fix: Fix, width: int) -> Iterator[Text]:
    if fix.profile:
        for place, words in enumerate(quality_sentences(fix.quality) or ["not verified"]):
            yield from wrap_sentence("Quality" if place == 0 else "", words, width)


def quality_sentences(quality: Quality) -> list[str]:
    """What is known of the results, a sentence each."""
    words = [english(verdict.sentence) for verdict in (quality.identity, quality.envelope) if verdict is not None]
    if (metric := quality.metric) is not None:
        doubt = "not verified: " if metric.verdict == "not verified" else ""
        words.append(f"your metric: {doubt}{english(metric.sentence)}")
    return words


def _why(fix: Fix, width: int, verbose: bool) -> Iterator[Text]:
    words = f"{fix.trials} trials in {_duration(fix.took_s)}; the search ended because {english(fix.ended)}"
    yield from wrap_sentence("Search", words, width)
    if (foretold := fix.foretold) is not None:
        figures = {"remedies": foretold.remedies, "near": foretold.near, "ratio": foretold.ratio}
        yield from wrap_sentence("Predicted", message("fix.foretold", **figures), width)
    for notice in fix.notices:
        yield from wrap_sentence("", notice, width)
    if verbose:
        for left_out in fix.left_out:
            yield from wrap_sentence("", f"{left_out.id} was not tried: {english(left_out.why)}", width)


def remedy_with_value(planned: Planned) -> str:
    if isinstance(planned.value, dict):
        inside = ",".join(f"{name}={value}" for name, value in planned.value.items())
        return f"{planned.id}={inside}" if inside else planned.id
    return planned.id if planned.value is True else f"{planned.id}={planned.value}"


def _prediction(planned: Planned) -> str:
    gain = planned.predicted
    return f"predicted ×{gain.mid:.2f}" if gain is not None else "no prediction"


def gain_with_bounds(gain: MeasuredGain) -> str:
    """As the table has it."""
    if gain.high > _UNSURE * gain.low:
        return f"×{gain.mid:.2f} (too uncertain to judge)"
    return with_interval(gain)


def _hours(hours: Hours | None) -> str:
    return f" · {figure(hours.mid)} h for 100,000 steps" if hours is not None else ""


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
