"""The HTML page of a stored run: everything that is known of it, judged by the catalogue of today."""

from __future__ import annotations

import os
from pathlib import Path

from flatout.diagnose.settings import setting_lines
from flatout.diagnose.source_join import examine_run_and_source
from flatout.diagnose.source_text import excerpts
from flatout.diagnose.timeline import make_timeline
from flatout.diagnose.verdict import make_checklist
from flatout.problems.catalogue import problems
from flatout.records.report import RunReport
from flatout.report.html.page import LANGUAGES, draw_page
from flatout.report.html.run_page import RunMaterial, run_page
from flatout.store.run import StoredRun

# The page of a long run is to be there within seconds.
_SOURCE_S = 2.0


def run_html(path: Path, language: str) -> str:
    """The page of the run stored at `path`. Takes a while: for a thread."""
    known = language if language in LANGUAGES else LANGUAGES[0]
    return draw_page(run_page(run_material(StoredRun(path))), known)


def run_material(run: StoredRun) -> RunMaterial:
    """Everything that is known of a run, judged by the catalogue of today."""
    evidence = examine_run_and_source(run, _SOURCE_S)
    return RunMaterial(
        report=evidence.report,
        timeline=make_timeline(run),
        checks=make_checklist(evidence),
        settings=setting_lines(evidence),
        excerpts=excerpts(run, evidence),
        explained=_explained(evidence.report),
        cwd=Path(run.manifest.cwd) if os.path.isabs(run.manifest.cwd) else None,
        started_unix_s=run.manifest.started_unix_s,
    )


def _explained(report: RunReport) -> dict[str, str]:
    codes = {finding.code for finding in report.findings}
    return {problem.code: problem.text for problem in problems() if problem.code in codes}
