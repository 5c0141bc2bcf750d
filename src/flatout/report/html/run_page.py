"""The page of one run: its verdict on top, then where the time goes, what to change, and what was not measured."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from flatout.records.message import Message
from flatout.records.report import PHASES, Check, LineCost, Location, RunReport
from flatout.records.timeline import Excerpt, SettingLine, Timeline
from flatout.report import text
from flatout.report.html.drawing import chart_data, histogram, phase_bar
from flatout.report.html.findings import page_findings
from flatout.report.html.page import Page, say
from flatout.report.html.tables import run_tables
from flatout.report.overview import main_figures, next_command, remedy_outcome, unmeasured_names

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


@dataclass(frozen=True, slots=True)
class PhaseLine:
    name: str
    share: str
    time: str


@dataclass(frozen=True, slots=True)
class ShownLine:
    location: Location
    function: str
    phase: str
    bar: float
    share: str
    time: str


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
        "step_times": None if times is None else histogram(times),
        "figures": main_figures(report),
        "has_charts": timeline is not None and bool(timeline.curves),
        "marks": sorted({mark.phase for mark in timeline.marks}) if timeline is not None else [],
        "findings": page_findings(report.findings, material.explained),
        "lines": _costs(report.lines),
        "worker_lines": _costs(report.worker_lines),
        "tables": run_tables(report, timeline, shown),
        "settings": material.settings,
        "checks": _grouped(material.checks),
        "remedies": [
            _Remedied(remedy.id, remedy.safety, remedy.state, remedy_outcome(remedy)) for remedy in report.remedies
        ],
        "unmeasured": unmeasured_names(report, timeline),
        "source": report.source if report.source is not None and report.source.not_measured else None,
        "notices": report.notices,
        "environment": tuple(_environment(material)),
        "excerpts": material.excerpts,
        "shown": shown,
    }


@dataclass(frozen=True, slots=True)
class _Remedied:
    id: str
    safety: str
    state: str
    words: Message


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


def _phases(report: RunReport) -> list[PhaseLine]:
    known = [(name, report.phases[name]) for name in PHASES if name in report.phases]
    return [
        PhaseLine(name, text.percent(phase.share), text.milliseconds(phase.ms))
        for name, phase in known
        if phase.share > 0
    ]


def _costs(costs: tuple[LineCost, ...]) -> list[ShownLine]:
    most = max((cost.share for cost in costs), default=1.0)
    return [
        ShownLine(
            location=cost.location,
            function=cost.function,
            phase=cost.phase,
            bar=round(100 * cost.share / most, 1),
            share=text.percent(cost.share),
            time=text.milliseconds(cost.ms),
        )
        for cost in costs[:_MOST_LINES]
    ]


def _grouped(checks: tuple[Check, ...]) -> list[tuple[str, list[Check]]]:
    return [(name, list(items)) for name, items in groupby(checks, key=lambda check: check.group)]


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
    yield "warmup", f"{report.warmup_steps:,}"
