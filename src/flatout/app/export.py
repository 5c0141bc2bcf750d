"""`flatout export`: a stored run in the forms that other tools read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flatout import __version__
from flatout.diagnose.source_join import join_source
from flatout.diagnose.summary import examine_run
from flatout.diagnose.tables import make_scalars, make_tables
from flatout.diagnose.trace import make_trace
from flatout.errors import FlatoutError
from flatout.problems.catalogue import problems
from flatout.records.atomic import atomic_file
from flatout.report.chrome_trace import to_chrome
from flatout.report.sarif import run_sarif
from flatout.report.table_files import check_parquet, csv_blocks, write_parquet
from flatout.report.tracking_tools import check_tool, write_metrics
from flatout.store.directory import find_run
from flatout.store.run import StoredRun

# Who asks for a run again has time for its source, though not for ever.
_SOURCE_S = 5.0


def open_run(name: str | None) -> StoredRun:
    return StoredRun(find_run(name or "last"))


def export_trace(name: str | None, steps: str | None, file: Path) -> tuple[str, int]:
    """Which steps were written, in words, and how many bytes."""
    found = make_trace(open_run(name), steps)
    text = to_chrome(found, __version__)
    with open_atomic(file) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return ", ".join(f"{first} to {last}" for first, last in found.steps), len(text)


def export_tables(name: str | None, folder: Path, as_parquet: bool) -> list[Path]:
    """A file for each table, in the order of their names."""
    if as_parquet:
        check_parquet()
    found = make_tables(open_run(name))
    make_folder(folder)
    files = []
    for title, table in found.items():
        file = folder / f"{title}.{'parquet' if as_parquet else 'csv'}"
        if as_parquet:
            with open_atomic(file) as temporary:
                write_parquet(table, temporary)
        else:
            with open_atomic(file) as temporary, temporary.open("wb") as out:
                out.writelines(csv_blocks(table))
        files.append(file)
    return files


def export_sarif(name: str | None) -> str:
    run = open_run(name)
    report = join_source(run, examine_run(run), limit_s=_SOURCE_S).report
    return run_sarif(report, run.manifest.cwd, __version__, {problem.code: problem.text for problem in problems()})


def export_metrics(name: str | None, tool: str, folder: Path) -> int:
    """How many curves were written."""
    check_tool(tool)
    run = open_run(name)
    found = make_scalars(run)
    make_folder(folder)
    manifest = run.manifest
    facts = {"run": run.id, "command": " ".join(manifest.argv), "flatout": __version__}
    try:
        write_metrics(tool, found, folder, run.id, facts)
    except OSError as error:
        raise FlatoutError(f"{str(folder)!r} cannot be written: {error.strerror or error}") from error
    return len(found)


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FlatoutError(f"{str(folder)!r} cannot be made: {error.strerror or error}") from error


@contextmanager
def open_atomic(file: Path) -> Iterator[Path]:
    """A file to write to that takes the place of `file` when all went well."""
    try:
        with atomic_file(file) as temporary:
            yield temporary
    except OSError as error:
        raise FlatoutError(f"{str(file)!r} cannot be written: {error.strerror or error}") from error
