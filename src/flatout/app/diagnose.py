"""`flatout diagnose`: the verdict and the findings of a stored run, judged again by the catalogue of today."""

from __future__ import annotations

import os

from flatout.diagnose.source_join import join_source
from flatout.diagnose.summary import examine_run
from flatout.diagnose.verdict import make_checklist
from flatout.launch.terminal import detect_terminal, write_stderr
from flatout.launch.verdict import ReportOutput, show_report
from flatout.report.terminal import render_checklist
from flatout.store.directory import find_run
from flatout.store.run import StoredRun

# Who asks for a run again has time for its source, though not for ever.
_SOURCE_S = 5.0


def run_diagnose(name: str | None, *, as_checklist: bool, json_file: str | None, quiet: bool, verbose: bool) -> int:
    """Show what the run comes to. The stored summary stays as it is."""
    run = StoredRun(find_run(name or "last"))
    found, screen = join_source(run, examine_run(run), limit_s=_SOURCE_S), detect_terminal(os.environ)
    show_report(found.report, run.path, ReportOutput(screen, json_file, quiet or as_checklist, verbose))
    if as_checklist and not quiet:
        write_stderr(render_checklist(make_checklist(found), screen.unicode))
    return 0
