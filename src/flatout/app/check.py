"""`flatout check`: the catalogue over source, shown in the form that was asked for."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flatout import __version__
from flatout.diagnose.source_check import Fixed, add_import_edits, apply_fixes, check_project, select_problems
from flatout.errors import FlatoutError
from flatout.launch.terminal import detect_stdout
from flatout.problems.catalogue import problems
from flatout.records.source import CheckReport
from flatout.report import check as terminal
from flatout.report.check import render_diff, render_github, render_outlook, to_json
from flatout.report.sarif import check_sarif
from flatout.source.project.loading import load
from flatout.source.project.project import MODEST_WORKERS, Project
from flatout.source.syntax.files import read_bytes, read_writable, replace_file
from flatout.store.directory import find_run


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What was asked for: which files, which problems, and how to show what is found."""

    paths: Sequence[Path]
    select: Sequence[str] = ()
    ignore: Sequence[str] = ()
    exclude: Sequence[str] = ()
    output: str = "full"
    statistics: bool = False
    # A run to take the cost of each finding from.
    run: str | None = None
    # With fixes: also those that may change results.
    unsafe: bool = False


def run_check(request: CheckRequest) -> tuple[str, CheckReport]:
    """The text to print and what it is about."""
    looked_for = select_problems(request.select, request.ignore)
    recorded = None if request.run is None else find_run(request.run)
    with _no_collection():
        project = load(request.paths, request.exclude)
        report = add_import_edits(check_project(project, looked_for), project)
        if recorded is not None:
            report = _with_costs(report, project, recorded)
    return _render(report, request), report


def _with_costs(report: CheckReport, project: Project, recorded: Path) -> CheckReport:
    # These bring numpy in, which a plain check has no need of.
    from flatout.diagnose.source_costs import join_costs
    from flatout.diagnose.summary import examine_run
    from flatout.store.run import StoredRun

    stored = StoredRun(recorded)
    return join_costs(report, project, stored, examine_run(stored))


def run_check_fix(request: CheckRequest) -> tuple[str, CheckReport, tuple[str, ...]]:
    """Writes the fixes. The text to print on what is left, the report of it, and what could not be done."""
    done = _fix_in_memory(request, read_writable)
    _write(done)
    return _render(done.left, request), done.left, done.trouble


def run_check_diff(request: CheckRequest) -> tuple[bytes, str, CheckReport, tuple[str, ...]]:
    """The diff, what it leaves, the report of that, and what could not be done. Nothing is written."""
    done = _fix_in_memory(request, read_bytes)
    changes = render_diff(done.before, done.after, color=detect_stdout().color)
    words = render_outlook(done.first.findings, done.left.fixed, len(done.after), unsafe=request.unsafe)
    return changes, words, done.left, done.trouble


def make_patch(paths: Sequence[Path], select: Sequence[str], workers: int | None, *, edit: bool) -> bytes:
    """The fixes of these problems as a diff for `patch` and `git apply`; empty if there are none.

    All fixes, also those that are not safe in any script: they were tried in this one, and changed nothing they should
    not. `edit` makes them as well.
    """
    read = read_writable if edit else read_bytes
    done = _fix_in_memory(CheckRequest(paths, select, unsafe=True), read, workers or MODEST_WORKERS)
    if edit:
        _write(done)
    return render_diff(done.before, done.after, color=False) if done.after else b""


def _write(done: Fixed) -> None:
    for file, data in done.after.items():
        replace_file(file, done.before[file], data)


def _fix_in_memory(request: CheckRequest, read: Callable[[str], bytes], workers: int = MODEST_WORKERS) -> Fixed:
    for path in request.paths:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise FlatoutError(f"{str(path)!r} cannot be written back; --fix and --diff take files and folders")
    looked_for = select_problems(request.select, request.ignore)
    with _no_collection():
        project = load(request.paths, request.exclude)
        project.workers = workers
        return apply_fixes(project, looked_for, read, unsafe=request.unsafe)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Syntax trees are many objects that all stay: looking through them again and again finds nothing to free."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # nor does it when all is said: the process ends
        gc.enable()


def _render(report: CheckReport, request: CheckRequest) -> str:
    output = request.output
    if output == "json":
        return to_json(report)
    if output == "sarif":
        return check_sarif(report, __version__, {problem.code: problem.text for problem in problems()})
    if output == "github":
        return render_github(report)
    screen = detect_stdout()
    by_finding = terminal.render_concise if output == "concise" else terminal.render_full
    draw = terminal.render_statistics if request.statistics else by_finding
    return draw(report, color=screen.color, unicode=screen.unicode)
