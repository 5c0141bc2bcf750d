"""`flatout verify`: is a profile still what it was said to be, here and today? The proof again, without a search."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from flatout.app.fix import Progress, with_written
from flatout.errors import FlatoutError
from flatout.experiment.bench import Settings, take_first_look
from flatout.experiment.proof import check_quality, conclude, confirm
from flatout.experiment.request import check_metric
from flatout.experiment.runner import prestarting_runner
from flatout.experiment.search import End, Search
from flatout.launch.process import INTERRUPTED, command_line, sigterm_interrupts
from flatout.launch.profile import read_profile
from flatout.launch.terminal import detect_terminal, write_json, write_stderr
from flatout.records.fix import Fix
from flatout.records.message import Message, message
from flatout.records.proof import BAR
from flatout.report.fix import render, to_json
from flatout.words import english


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    file: Path
    cmd: tuple[str, ...]
    budget_s: float = 300.0
    metric: str | None = None
    higher: bool = True
    allow_writes: bool = False
    json: str | None = None
    python: str | None = None
    quiet: bool = False


def run_verify(asked: VerifyOptions) -> int:
    """0 if the profile still gains and still changes nothing it should not; 1 if not."""
    values = read_profile(asked.file, ()).values
    if not values:
        raise FlatoutError(f"{asked.file} asks for no remedy, so there is nothing to verify")
    command_line(asked.cmd, asked.python)
    check_metric(asked.metric)
    settings = Settings(
        asked.cmd,
        budget_s=asked.budget_s,
        metric=asked.metric,
        higher=asked.higher,
        allow_writes=asked.allow_writes,
    )
    progress = Progress(detect_terminal(os.environ), asked.quiet, settings.budget_s)
    try:
        with sigterm_interrupts():
            fix = _measured(settings, values, progress, asked.python)
    except KeyboardInterrupt:
        progress.end()
        write_stderr("flatout: interrupted before the profile was judged; nothing was changed or kept\n")
        return INTERRUPTED
    progress.end()
    return _show(fix, asked)


def _measured(settings: Settings, values: Mapping[str, object], progress: Progress, python: str | None) -> Fix:
    with (
        TemporaryDirectory(prefix="flatout-verify-") as folder,
        prestarting_runner(Path(folder), python, progress.begins) as maker,
    ):
        bench, report = take_first_look(settings, maker, maker.report)
        search = Search(bench, maker.report)
        search.measure_bare()
        search.found.profile, search.found.ended = dict(values), End.VERIFIED
        confirm(bench, search)
        return with_written(conclude(bench, search, report, check_quality(bench, search)))


def _show(fix: Fix, asked: VerifyOptions) -> int:
    screen = detect_terminal(os.environ)
    why = _objection(fix)
    if asked.json is not None:
        write_json(asked.json, {**to_json(fix), "holds": why is None})
    if not asked.quiet:
        write_stderr(render(fix, width=screen.width, color=screen.color, unicode=screen.unicode))
        write_stderr(" The profile holds.\n" if why is None else f" The profile does not hold: {english(why)}.\n")
    return 0 if why is None else 1


def _objection(fix: Fix) -> Message | None:
    if fix.gain is None:
        return next(iter(fix.failures.values()), message("verify.unmeasured"))
    quality = fix.quality
    if quality.identity is not None and quality.identity.verdict == "differs":
        return message("verify.differs", sentence=quality.identity.sentence)
    for verdict in (quality.envelope, quality.metric):
        if verdict is not None and verdict.verdict in ("outside", "worse"):
            return verdict.sentence
    return None if fix.gain.low > BAR else message("verify.slower")
