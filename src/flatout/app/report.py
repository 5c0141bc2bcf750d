"""`flatout report`: a stored run, or the record of a fix, as one HTML file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from flatout import __version__
from flatout.app.fix_report import fix_at, fix_material, fix_named
from flatout.app.profile_file import write_whole
from flatout.app.terminal import say
from flatout.diagnose.checklist import checklist
from flatout.diagnose.excerpts import excerpts
from flatout.diagnose.merging import merged
from flatout.diagnose.settings import setting_lines
from flatout.diagnose.summary import examine
from flatout.diagnose.timeline import timeline
from flatout.errors import FlatoutError
from flatout.problems.catalogue import problems
from flatout.records.report import RunReport
from flatout.report.html.fix_page import fix_page
from flatout.report.html.page import LANGUAGES, Page, drawn
from flatout.report.html.run_page import RunMaterial, run_page
from flatout.store.directory import find_run
from flatout.store.run import StoredRun

# The report of a long run is to be there within seconds.
_SOURCE_S = 2.0
_SAY = {"wrote": "flatout: wrote {file} ({size})\n"}


def write_report(name: str | None, *, out: str | None, language: str, quiet: bool) -> int:
    """Write the page of the run or fix `name` to `out` (default: beside us, by its own name; "-": stdout)."""
    if language not in LANGUAGES:
        raise FlatoutError(f"--lang must be one of {', '.join(LANGUAGES)}, got {language!r}")
    stem, page = page_of(name)
    html = drawn(page, language, __version__)
    if out == "-":
        # UTF-8 as the page itself says, whatever the terminal's encoding.
        sys.stdout.buffer.write(html.encode())
        sys.stdout.flush()
        return 0
    file = Path(out or f"{stem}.html")
    try:
        write_whole(file, html)
    except OSError as error:
        raise FlatoutError(
            f"{str(file)!r} could not be written ({error.strerror or error}): give another -o"
        ) from error
    if not quiet:
        say(_SAY["wrote"].format(file=file, size=f"{len(html.encode()) / 1024:,.0f} KiB"))
    return 0


def html_of(path: Path, language: str = "en") -> str:
    """The page of the run stored at `path`, for whoever serves it."""
    return drawn(run_page(run_material(StoredRun(path))), language, __version__)


def page_of(name: str | None) -> tuple[str, Page]:
    """The page of a run or of a fix, and a name for its file. Where a name fits both, it is the run."""
    try:
        fix = fix_at(Path(name)) if name else None
        run = StoredRun(find_run(name or "last")) if fix is None else None
    except FlatoutError:
        fix, run = fix_named(name or ""), None
        if fix is None:
            raise
    if run is not None:
        return run.id, run_page(run_material(run))
    assert fix is not None
    look = fix.look
    return fix.stem, fix_page(fix_material(fix, None if look is None else run_material(look)))


def run_material(run: StoredRun) -> RunMaterial:
    """Everything that is known of a run, judged by the catalogue of today."""
    evidence = merged(run, examine(run), limit_s=_SOURCE_S)
    return RunMaterial(
        report=evidence.report,
        timeline=timeline(run),
        checks=checklist(evidence),
        settings=setting_lines(evidence),
        excerpts=excerpts(run, evidence),
        explained=_explained(evidence.report),
        cwd=Path(run.manifest.cwd) if os.path.isabs(run.manifest.cwd) else None,
        started_unix_s=run.manifest.started_unix_s,
    )


def _explained(report: RunReport) -> dict[str, str]:
    codes = {finding.code for finding in report.findings}
    return {problem.code: problem.text for problem in problems() if problem.code in codes}
