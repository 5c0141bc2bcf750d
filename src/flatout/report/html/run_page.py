"""The page of one run: its verdict on top, then where the time goes, what to change, and what was not measured."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

from flatout.records.message import VERBATIM, Message
from flatout.records.report import PHASES, Check, Finding, LineCost, Location, RunReport
from flatout.records.timeline import Excerpt, SettingLine, Timeline
from flatout.report import text
from flatout.report.html.drawing import chart_data, histogram, phase_bar
from flatout.report.html.page import Page, in_both, say, show
from flatout.report.html.tables import Shown, kernel_lines, run_tables
from flatout.report.overview import (
    describe_warmup,
    ladder_rungs,
    main_figures,
    next_command,
    remedy_outcome,
    spent_on,
    unmeasured_names,
)
from flatout.words import english
from flatout.words.render import problem_words

_MOST_LINES = 20


@dataclass(frozen=True, slots=True)
class RunMaterial:
    """Everything that is known of a run, from which its page is made."""

    report: RunReport
    timeline: Timeline | None = None
    checks: tuple[Check, ...] = ()
    settings: tuple[SettingLine, ...] = ()
    excerpts: Mapping[Location, Excerpt] = field(default_factory=dict)
    # The text of `flatout explain` by code.
    explained: Mapping[str, str] = field(default_factory=dict)
    # Where the script ran: files below it are shown relative to it.
    cwd: Path | None = None
    started_unix_s: float | None = None


def run_page(material: RunMaterial) -> Page:
    """The page, ready to be drawn."""
    run = material.report.run
    return Page(
        template="run.html",
        title=f"flatout · {run.id}",
        kind=run.id,
        context=run_context(material),
        data=chart_data(material.timeline),
    )


def run_context(material: RunMaterial) -> dict[str, Any]:
    """What the templates of a run's sections need; the page of a fix shows them as well."""
    report, timeline = material.report, material.timeline

    root = _root(material)

    def shown(location: Location) -> str:
        return f"{text.clean(text.relative(location.file, root))}:{location.line}"

    times = timeline.step_times if timeline is not None else None
    return {
        "report": report,
        "facts": tuple(_facts(material)),
        "exit_code": report.run.exit_code,
        "next": next_command(report),
        "bar": phase_bar(report),
        "phases": _phases(report),
        "parts_spent": [(part, text.percent(share)) for part, share in spent_on(report)],
        "step_times": None if times is None else histogram(times),
        "figures": main_figures(report),
        "kernels": _kernels(report, shown),
        "ladder": _ladder(report),
        "has_charts": timeline is not None and bool(timeline.curves),
        "marks": sorted({mark.phase for mark in timeline.marks}) if timeline is not None else [],
        "findings": page_findings(report.findings, material.explained),
        "lines": _costs(report.lines),
        "worker_lines": _costs(report.worker_lines),
        "tables": run_tables(report, timeline, shown),
        "settings": material.settings,
        "checks": [(name, list(items)) for name, items in groupby(material.checks, key=lambda check: check.group)],
        "remedies": [
            {"id": remedy.id, "safety": remedy.safety, "state": remedy.state, "words": remedy_outcome(remedy)}
            for remedy in report.remedies
        ],
        "unmeasured": unmeasured_names(report, timeline),
        "source": report.source if report.source is not None and report.source.not_measured else None,
        "notices": report.notices,
        "environment": tuple(_environment(material)),
        "excerpts": material.excerpts,
        "shown": shown,
    }


def _root(material: RunMaterial) -> Path | None:
    """What paths are shown relative to: where the script ran, or the folder above the script if that is elsewhere."""
    cwd = material.cwd
    script = next((word for word in material.report.run.argv if word.endswith(".py") and os.path.isabs(word)), None)
    if script is None or (cwd is not None and not os.path.relpath(script, cwd).startswith("..")):
        return cwd
    return Path(script).parent.parent


def _facts(material: RunMaterial) -> Iterator[str]:
    """As the terminal's first line has them, with what was run and when."""
    run = material.report.run
    if material.started_unix_s:
        yield time.strftime("%Y-%m-%d %H:%M", time.localtime(material.started_unix_s))
    yield shown_command(run.argv)
    if run.steps:
        yield say("fact_steps", steps=f"{run.steps:,}")
    yield text.duration(run.wall_s)
    if run.ranks > 1:
        yield say("fact_ranks", ranks=run.ranks)
    if run.steps:
        yield "CPU" if run.device == "cpu" else run.device


def shown_command(argv: tuple[str, ...]) -> str:
    """Short enough for a heading: the script by its name and the first of its arguments."""
    words = [os.path.basename(word) if word.endswith(".py") else word for word in argv]
    return text.clean(" ".join(words))[:120]


def _phases(report: RunReport) -> list[dict[str, str]]:
    known = [(name, report.phases[name]) for name in PHASES if name in report.phases]
    return [
        {"name": name, "share": text.percent(phase.share), "time": text.milliseconds(phase.ms)}
        for name, phase in known
        if phase.share > 0
    ]


def _kernels(report: RunReport, shown: Shown) -> dict[str, Any] | None:
    """None where no step was recorded kernel by kernel. All kinds are shown, small ones too."""
    gpu = report.gpu
    if gpu is None or gpu.kernels is None:
        return None
    kernels = gpu.kernels
    total_ms = sum(kind.ms for kind in kernels.kinds)
    most_ms = max((kind.ms for kind in kernels.kinds), default=1.0)
    return {
        "busy": text.milliseconds(kernels.busy_ms),
        "share": text.told(gpu.busy_share, text.percent),
        "count": f"{kernels.count:,.0f}",
        "kinds": [
            {
                "name": Message(f"kernel.{kind.kind}"),
                "bar": round(100 * kind.ms / most_ms, 1),
                "share": text.percent(kind.ms / total_ms),
                "time": text.milliseconds(kind.ms),
            }
            for kind in kernels.kinds
            if kind.ms > 0
        ],
        "lines": kernel_lines(kernels, shown),
    }


def _ladder(report: RunReport) -> dict[str, Any] | None:
    """From the step as it is to the device's limit; None where it is not known."""
    ladder = None if report.gpu is None else report.gpu.ladder
    if ladder is None:
        return None
    most_ms = ladder.rungs[0].ms
    return {
        "mfu": text.percent(ladder.mfu),
        "precision": ladder.precision,
        "tflops": f"{ladder.tflops_per_s:,.3g}",
        "peak": Message(f"peak.{'sheet' if ladder.peak_source == 'data sheet' else 'measured'}"),
        "gb": f"{ladder.gb_per_s:,.0f}",
        "rungs": [
            {"name": name, "bar": round(100 * ms / most_ms, 1), "time": text.milliseconds(ms)}
            for name, ms in ladder_rungs(ladder)
        ],
    }


def _costs(costs: tuple[LineCost, ...]) -> list[dict[str, Any]]:
    most = max((cost.share for cost in costs), default=1.0)
    return [
        {
            "location": cost.location,
            "function": cost.function,
            "phase": cost.phase,
            "bar": round(100 * cost.share / most, 1),
            "share": text.percent(cost.share),
            "time": text.milliseconds(cost.ms),
        }
        for cost in costs[:_MOST_LINES]
    ]


def _environment(material: RunMaterial) -> Iterator[tuple[str, str]]:
    report, known = material.report, material.report.environment
    yield "command", " ".join(report.run.argv)
    if material.cwd is not None:
        yield "folder", str(material.cwd)
    for name in ("python", "torch"):
        if value := getattr(report.run, name):
            yield name, str(value)
    for name in ("host", "os", "cpu_model", "cpus_allowed", "git_commit"):
        if value := known.get(name):
            yield name, str(value)
    if report.overhead.us_per_step is not None:
        share = "" if report.overhead.share is None else f" · {report.overhead.share:.2%}"
        yield "own_cost", say("own_cost", cost=text.figure(report.overhead.us_per_step), share=share)
    warmup = report.warmup
    yield "warmup", f"{report.warmup_steps:,}" if warmup is None else show(describe_warmup(warmup))


# Findings: evidence in readable figures, the change to make, and the catalogue's text in its parts.


# What stands in a table of its own, or is said twice.
_ELSEWHERE = re.compile(r"table$|.*_configured(_at)?$|.*_live$")
_HEADING = re.compile(r"([A-Z][\w ]{3,30}): ")


# Text, and whether it is code.
Pieces = tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class Explained:
    """A part of the text: a block of code, or a paragraph in pieces of words and of code; with its heading."""

    heading: str
    pieces: Pieces
    is_block: bool


def page_findings(findings: Sequence[Finding], explained: Mapping[str, str]) -> list[dict[str, Any]]:
    return [_shown(finding, explained.get(finding.code, "")) for finding in findings]


def _shown(finding: Finding, explained: str) -> dict[str, Any]:
    gain = finding.predicted_gain
    chinese = problem_words().get(finding.code)
    return {
        "code": finding.code,
        "title": finding.title,
        "severity": finding.severity,
        "gain": None if gain is None else say("gain_range", low=f"×{gain.low:.2f}", high=f"×{gain.high:.2f}"),
        # How the gain was reckoned: for a tooltip, and in both languages.
        "by": "" if gain is None else english(gain.method),
        "method": None if gain is None else show(gain.method),
        "cause": show_sentence(finding.cause),
        "change": None if finding.change is None else show(finding.change),
        "fix": finding.fix,
        "location": finding.location,
        "related": finding.related,
        "evidence": tuple(_evidence(finding)),
        "explained": tuple(_parts(explained)),
        # What it is and what to do about it, in Chinese; empty where the catalogue does not know it.
        "what_it_is": () if chinese is None else _pieces(chinese.what_it_is),
        "what_to_do": () if chinese is None else _pieces(chinese.what_to_do),
    }


def show_sentence(words: Message) -> Markup:
    """With a capital and a full stop."""
    if words.id != VERBATIM:
        return say("sentence", words=words)
    return in_both(f"{_sentence(english(words)).rstrip('.')}.", None)


def _sentence(cause: str) -> str:
    """With a capital, unless it begins with a name of the code."""
    first = cause.partition(" ")[0]
    begins = cause[:1].upper() if first.isalpha() else cause[:1]
    return f"{begins}{cause[1:]}"


def _evidence(finding: Finding) -> Iterator[tuple[str, str]]:
    for name, value in finding.evidence.items():
        if not _ELSEWHERE.fullmatch(name):
            yield name.replace("_", " "), _figure(name, value)


def _figure(name: str, value: float | int | str) -> str:
    if isinstance(value, str):
        return value
    if name.endswith("_share"):
        return text.percent(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _parts(explained: str) -> Iterator[Explained]:
    """The paragraphs of a problem's docstring after its title; indented ones are code."""
    for paragraph in re.split(r"\n\s*\n", explained.strip())[1:]:
        if paragraph.startswith("    "):
            block = "\n".join(line.removeprefix("    ") for line in paragraph.split("\n"))
            yield Explained("", ((block, True),), True)
            continue
        named = _HEADING.match(paragraph)
        words = " ".join((paragraph[named.end() :] if named else paragraph).split())
        yield Explained(named[1] if named else "", _pieces(_sentence(words)), False)


def _pieces(words: str) -> Pieces:
    """What stands between backticks is every second piece."""
    return tuple((piece, number % 2 == 1) for number, piece in enumerate(words.split("`")) if piece)
