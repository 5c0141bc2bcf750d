"""`flatout runs`, `diagnose`, `serve` and `logs`: stored runs and logs listed, tidied up, judged again, shown."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flatout.errors import FlatoutError
from flatout.launch.terminal import detect_stdout, detect_terminal, write_stderr
from flatout.store.directory import find_run, prune, run_paths
from flatout.store.run import RunLine, StoredRun, run_line


def list_runs(root: Path | None = None) -> tuple[RunLine, ...]:
    """Every run under `root` (default: here, and the fallback place), newest first."""
    return tuple(run_line(path) for path in run_paths(root))


def prune_runs(root: Path | None, keep: int | None, older_than_s: float | None) -> tuple[str, ...]:
    """Delete runs and return their ids. One of the limits must be given: nothing goes by default."""
    if keep is None and older_than_s is None:
        raise FlatoutError("--prune needs --keep N or --older-than 7d, so that it is clear what may go")
    return tuple(path.name for path in prune(root, keep, older_than_s))


def run_diagnose(name: str | None, *, as_checklist: bool, json_file: str | None, quiet: bool, verbose: bool) -> int:
    """The verdict and the findings of a stored run by the catalogue of today. Its stored summary stays as it is."""
    # The catalogue takes long to import, and a list of runs has no need of it.
    from flatout.diagnose.source_join import examine_run_and_source
    from flatout.diagnose.verdict import make_checklist
    from flatout.launch.verdict import ReportOutput, show_report
    from flatout.report.terminal import render_checklist

    run = StoredRun(find_run(name or "last"))
    found, screen = examine_run_and_source(run), detect_terminal(os.environ)
    show_report(found.report, run.path, ReportOutput(screen, json_file, quiet or as_checklist, verbose))
    if as_checklist and not quiet:
        write_stderr(render_checklist(make_checklist(found), screen.unicode))
    return 0


def run_serve(host: str, port: int | None, root: Path | None, as_json: bool) -> None:
    """The dashboard of all runs under `root`, until Ctrl-C."""
    from flatout.dashboard.address import listen
    from flatout.dashboard.companion import give_way
    from flatout.dashboard.run_list import RunList

    address = listen(host, port)
    if as_json:
        sys.stdout.write(json.dumps({"schema": 1, "url": address.url(), "port": address.port}) + "\n")
        sys.stdout.flush()
    else:
        write_stderr(address.invitation())
    from flatout.dashboard.server import serve  # brings starlette and uvicorn in: `listen` has looked for them

    give_way()
    try:
        serve(address, RunList(root))
    except KeyboardInterrupt:
        pass


# `flatout logs`: a training log read, judged and shown; two of them compared.


@dataclass(frozen=True, slots=True)
class LogsRequest:
    """What was asked for. One batch size counts for all files, else there must be one for each, in order."""

    files: Sequence[Path]
    pattern: str | None = None
    batch_sizes: Sequence[float] = ()
    as_json: bool = False
    quiet: bool = False
    verbose: bool = False


def run_logs(request: LogsRequest) -> str:
    """The text to print."""
    from flatout.diagnose.logs.pace import compare_logs, summarise_log
    from flatout.diagnose.logs.reader import read_log
    from flatout.diagnose.logs.readings import Pattern
    from flatout.report.layout import Look
    from flatout.report.logs import render, to_json

    wanted = None if request.pattern is None else Pattern(request.pattern)
    sizes = _sizes(request.batch_sizes, len(request.files))
    logs = [summarise_log(read_log(file, wanted), size) for file, size in zip(request.files, sizes, strict=True)]
    comparison = compare_logs(logs[0], logs[1]) if len(logs) == 2 else None
    if request.as_json:
        return json.dumps(to_json(logs, comparison), indent=2, allow_nan=False) + "\n"
    screen = detect_stdout()
    look = Look(screen.width, screen.color, screen.unicode, quiet=request.quiet, verbose=request.verbose)
    return render(logs, comparison, look)


def _sizes(given: Sequence[float], files: int) -> list[float | None]:
    for size in given:
        if not (size >= 1 and math.isfinite(size)):
            raise FlatoutError(f"--batch-size must be at least 1, got {size:g}")
    if not given:
        return [None] * files
    if len(given) == 1:
        return [given[0]] * files
    if len(given) != files:
        raise FlatoutError(f"--batch-size is given {len(given)} times for {files} file{'s' if files != 1 else ''}")
    return list(given)
