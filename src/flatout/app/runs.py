"""`flatout runs`, `diagnose` and `serve`: stored runs listed, tidied up, judged again, and shown in the browser."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from flatout.errors import FlatoutError
from flatout.launch.terminal import detect_terminal, write_stderr
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
