"""`flatout report`: a stored run, or the record of a fix, as one HTML file."""

from __future__ import annotations

import sys
from pathlib import Path

from flatout import __version__
from flatout.app.fix_report import fix_at, fix_material, fix_named
from flatout.errors import FlatoutError
from flatout.launch.run_page import run_material
from flatout.launch.terminal import write_stderr
from flatout.records.atomic import SHARED, write_atomic
from flatout.report.html.fix_page import fix_page
from flatout.report.html.page import LANGUAGES, Page, draw_page
from flatout.report.html.run_page import run_page
from flatout.store.directory import find_run
from flatout.store.run import StoredRun

_SAY = {"wrote": "flatout: wrote {file} ({size})\n"}


def run_report(name: str | None, *, out: str | None, language: str, quiet: bool) -> int:
    """Write the page of the run or fix `name` to `out` (default: beside us, by its own name; "-": stdout)."""
    if language not in LANGUAGES:
        raise FlatoutError(f"--lang must be one of {', '.join(LANGUAGES)}, got {language!r}")
    stem, page = make_page(name)
    html = draw_page(page, language, __version__)
    if out == "-":
        # UTF-8 as the page itself says, whatever the terminal's encoding.
        sys.stdout.buffer.write(html.encode())
        sys.stdout.flush()
        return 0
    file = Path(out or f"{stem}.html")
    try:
        write_atomic(file, html, mode=SHARED)
    except OSError as error:
        raise FlatoutError(
            f"{str(file)!r} could not be written ({error.strerror or error}): give another -o"
        ) from error
    if not quiet:
        write_stderr(_SAY["wrote"].format(file=file, size=f"{len(html.encode()) / 1024:,.0f} KiB"))
    return 0


def make_page(name: str | None) -> tuple[str, Page]:
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
