"""The page of a fix: what it gained and how surely, every remedy, the quality, and the run as it was before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from flatout.records.fix import Fix
from flatout.records.message import Message
from flatout.records.proof import MeasuredGain
from flatout.records.report import RunReport
from flatout.records.trial import Trial
from flatout.report import text
from flatout.report.fix import remedy_with_value
from flatout.report.html.drawing import Bar, chart_data, phase_bar
from flatout.report.html.page import Page, in_both, show
from flatout.report.html.proof_drawing import draw_arms, draw_gains, draw_losses
from flatout.report.html.run_page import RunMaterial, run_context, shown_command
from flatout.report.overview import next_after_fix
from flatout.words import chinese_if_known, english


@dataclass(frozen=True, slots=True)
class FixMaterial:
    """`before` is the run that was looked at; `after` the report of a trial under the profile. Both may be gone."""

    fix: Fix
    trials: tuple[Trial, ...]
    before: RunMaterial | None
    after: RunReport | None
    name: str


@dataclass(frozen=True, slots=True)
class Rate:
    name: str
    figure: str
    # Of the longest bar, in percent.
    width: float
    css: str


@dataclass(frozen=True, slots=True)
class TriedLine:
    name: str
    safety: str
    title: str
    predicted: str
    measured: str
    state: str
    why: Message
    identity: Markup | None


def fix_page(material: FixMaterial) -> Page:
    fix, before = material.fix, material.before
    context: dict[str, Any] = {} if before is None else run_context(before)
    bars = _before_after(material)
    return Page(
        template="fix.html",
        title=f"flatout fix · {material.name}",
        kind=material.name,
        context={
            **context,
            "has_run": before is not None,
            "fix": fix,
            "facts_of_fix": [shown_command(fix.command), "CPU" if fix.device == "cpu" else fix.device],
            "next": next_after_fix(fix),
            "ceiling_told": None if fix.ceiling is None else _with_full_stop(fix.ceiling.sentence),
            "before": _rate(fix.before_per_s),
            "after": _rate(fix.after_per_s) if fix.profile else None,
            "hours_before": None if fix.hours_before is None else text.figure(fix.hours_before.mid),
            "hours_after": None if fix.hours_after is None else text.figure(fix.hours_after.mid),
            "interval": None if fix.gain is None else _interval(fix.gain),
            "gain": None if fix.gain is None else f"×{fix.gain.mid:.2f}",
            "gains": draw_gains(fix),
            "tried": [_line(fix, n) for n in range(len(fix.tried))],
            "arms": draw_arms(fix, material.trials),
            "losses": draw_losses(fix, material.trials),
            "ceiling": tuple(_ceiling(fix)),
            "quality": tuple(_quality(fix)),
            "took": text.duration(fix.took_s),
            "bars": bars,
            "profile": [f"{name} = {value}" for name, value in fix.profile.items()],
        },
        data=chart_data(None if before is None else before.timeline),
    )


def _rate(per_s: float | None) -> str | None:
    return None if per_s is None else text.figure(per_s)


def _interval(gain: MeasuredGain) -> dict[str, object]:
    return {
        "confidence": f"{gain.confidence:.0%}",
        "low": f"×{gain.low:.2f}",
        "high": f"×{gain.high:.2f}",
        "before": gain.trials[0],
        "after": gain.trials[1],
    }


def _line(fix: Fix, number: int) -> TriedLine:
    attempt = fix.tried[number]
    gain, predicted = attempt.gain, attempt.planned.predicted
    return TriedLine(
        name=remedy_with_value(attempt.planned),
        safety=attempt.planned.safety,
        title=attempt.planned.title,
        predicted="–" if predicted is None else f"×{predicted.mid:.2f}",
        measured="–" if gain is None else text.with_interval(gain),
        state=attempt.outcome.replace(" ", "_"),
        why=attempt.why,
        identity=None if attempt.identity is None else show(attempt.identity.sentence),
    )


def _ceiling(fix: Fix) -> Iterator[Rate]:
    found = fix.ceiling
    if found is None:
        return
    rates = [
        ("ceiling_achieved", found.achieved_per_s, "achieved"),
        ("ceiling_compute", found.compute_per_s, ""),
        ("ceiling_feed", found.feed_per_s, ""),
    ]
    most = max(rate for _, rate, _ in rates if rate is not None)
    for name, rate, css in rates:
        if rate is not None:
            yield Rate(name, text.figure(rate), round(100 * rate / most, 2), css)


def _quality(fix: Fix) -> Iterator[tuple[str, str, Markup]]:
    """What was looked at, what came out, and the sentence about it."""
    found = fix.quality
    if (identity := found.identity) is not None:
        yield "quality_identity", _key(identity.verdict), show(identity.sentence)
    if (loss := found.envelope) is not None:
        yield "quality_envelope", _key(loss.verdict), show(loss.sentence)
    if (metric := found.metric) is not None:
        yield "quality_metric", _key(metric.verdict), show(metric.sentence)


def _with_full_stop(sentence: Message) -> Markup:
    translated = chinese_if_known(sentence)
    return in_both(f"{english(sentence)}.", None if translated is None else f"{translated}。")


def _key(verdict: str) -> str:
    return f"proof_{verdict.replace(' ', '_')}"


def _before_after(material: FixMaterial) -> list[tuple[str, Bar]]:
    """Both steps to one scale: a sample's worth of each, where the batch was changed."""
    if material.before is None or material.after is None:
        return []
    both = [("step_before", material.before.report), ("step_after", material.after)]
    lengths = [_seconds(report) for _, report in both]
    if not all(lengths):
        return []
    return [
        (name, phase_bar(report, name, length / max(lengths)))
        for (name, report), length in zip(both, lengths, strict=True)
    ]


def _seconds(report: RunReport) -> float:
    rates = report.throughput
    rate = rates.samples_per_s or rates.steps_per_s
    return 1.0 / rate if rate else 0.0
