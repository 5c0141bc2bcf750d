"""From a finished run to its verdict: the summary, the JSON file, the words on the terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flatout.diagnose.source_join import examine_run_and_source
from flatout.errors import FlatoutError
from flatout.launch.terminal import Terminal, write_json, write_stderr
from flatout.records.message import Message, message, verbatim
from flatout.records.report import RunReport
from flatout.report.json import to_json
from flatout.report.layout import Look
from flatout.report.terminal import render
from flatout.store.directory import RunDirectory
from flatout.store.run import StoredRun
from flatout.words import english

# Somebody waits for the verdict: seconds that reading the source may take.
_SOURCE_S = 0.3


def judge_finished_run(path: Path, argv: Sequence[str]) -> RunReport:
    """The report of the finished run at `path`; one without steps says why."""
    stored = StoredRun(path)
    report = examine_run_and_source(stored, _SOURCE_S).report
    if report.run.steps:
        return report
    return replace(report, notices=(explain_no_step(argv, len(stored.recordings)), *report.notices))


@dataclass(frozen=True, slots=True)
class ReportOutput:
    """Where and how a report is shown; `json_file` may be "-" for stdout."""

    screen: Terminal
    json_file: str | None = None
    quiet: bool = False
    verbose: bool = False


def publish_report(report: RunReport, run: RunDirectory, output: ReportOutput) -> None:
    """Store the report and show it."""
    run.write_summary(to_json(report))
    show_report(report, run.path, output)


def show_report(report: RunReport, path: Path, output: ReportOutput) -> None:
    """The report of the run at `path`. A JSON file that cannot be written costs a line, not the verdict."""
    json_file, screen = output.json_file, output.screen
    if json_file is not None:
        try:
            write_json(json_file, to_json(report))
        except FlatoutError as error:
            reason = verbatim(str(error.__cause__))
            notice = message("run.json_not_written", file=json_file, error=reason, path=str(path))
            report = replace(report, notices=(notice, *report.notices))
            if output.quiet:
                write_stderr(f"flatout: {english(notice)}\n")
    if not output.quiet:
        cwd = Path.cwd()
        write_stderr(
            render(
                report,
                Look(screen.width, screen.color, screen.unicode, cwd, verbose=output.verbose),
                saved=str(path.relative_to(cwd) if path.is_relative_to(cwd) else path),
            )
        )


def explain_no_step(argv: Sequence[str], recordings: int) -> Message:
    """The likeliest reason why no step was seen."""
    if recordings:
        return message("run.no_optimizer_step")
    flag = _isolating_flag(argv)
    return message("run.python_isolated", flag=flag) if flag else message("run.no_torch")


def _isolating_flag(argv: Sequence[str]) -> str | None:
    """An option of python by which it ignores PYTHONPATH or leaves out sitecustomize."""
    if not os.path.basename(argv[0]).startswith("python"):
        return None
    for word in argv[1:]:
        if not word.startswith("-") or word.startswith("--") or word[:2] in ("-m", "-c", "-"):
            return None
        for letter in "ISE":
            if letter in word and word[:2] not in ("-W", "-X"):
                return f"-{letter}"
    return None
