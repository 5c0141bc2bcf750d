"""The one-file report of a run, as `flatout report` writes it."""

from __future__ import annotations

from pathlib import Path

from flatout.store.run import StoredRun


def report_page(path: Path, language: str) -> str:
    """Takes a while: for a thread."""
    # Everything that a report shows takes long to import, and nobody may ever ask for one.
    from flatout.app.report import run_material
    from flatout.report.html.page import LANGUAGES, drawn
    from flatout.report.html.run_page import run_page

    return drawn(run_page(run_material(StoredRun(path))), language if language in LANGUAGES else LANGUAGES[0])
