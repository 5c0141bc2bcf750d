"""`flatout export`: a stored run in the forms that other tools read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flatout import __version__
from flatout.diagnose.merging import merged
from flatout.diagnose.scalars import scalars
from flatout.diagnose.summary import examine
from flatout.diagnose.tables import tables
from flatout.diagnose.tracing import trace
from flatout.errors import FlatoutError
from flatout.problems.catalogue import problems
from flatout.report.metrics import check_tool, write_metrics
from flatout.report.sarif import run_sarif
from flatout.report.tables import check_parquet, csv_blocks, write_parquet
from flatout.report.trace import to_chrome
from flatout.store.directory import find_run
from flatout.store.run import StoredRun

# Who asks for a run again has time for its source, though not for ever.
_SOURCE_S = 5.0


def opened(name: str | None) -> StoredRun:
    return StoredRun(find_run(name or "last"))


def exported_trace(name: str | None, steps: str | None, file: Path) -> tuple[str, int]:
    """Which steps were written, in words, and how many bytes."""
    found = trace(opened(name), steps)
    text = to_chrome(found, __version__)
    written(file, text.encode())
    return ", ".join(f"{first} to {last}" for first, last in found.steps), len(text)


def exported_tables(name: str | None, folder: Path, as_parquet: bool) -> list[Path]:
    """A file for each table, in the order of their names."""
    if as_parquet:
        check_parquet()
    found = tables(opened(name))
    made(folder)
    files = []
    for title, table in found.items():
        file = folder / f"{title}.{'parquet' if as_parquet else 'csv'}"
        if as_parquet:
            with whole(file) as temporary:
                write_parquet(table, temporary)
        else:
            with whole(file) as temporary, temporary.open("wb") as out:
                out.writelines(csv_blocks(table))
        files.append(file)
    return files


def exported_sarif(name: str | None) -> str:
    run = opened(name)
    report = merged(run, examine(run), limit_s=_SOURCE_S).report
    return run_sarif(report, run.manifest.cwd, __version__, {one.code: one.text for one in problems()})


def exported_metrics(name: str | None, tool: str, folder: Path) -> int:
    """How many curves were written."""
    check_tool(tool)
    run = opened(name)
    found = scalars(run)
    made(folder)
    manifest = run.manifest
    facts = {"run": run.id, "command": " ".join(manifest.argv), "flatout": __version__}
    try:
        write_metrics(tool, found, folder, run.id, facts)
    except OSError as error:
        raise FlatoutError(f"{str(folder)!r} cannot be written: {error.strerror or error}") from error
    return len(found)


def made(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FlatoutError(f"{str(folder)!r} cannot be made: {error.strerror or error}") from error


def written(file: Path, data: bytes) -> None:
    with whole(file) as temporary:
        temporary.write_bytes(data)


@contextmanager
def whole(file: Path) -> Iterator[Path]:
    """A file to write to that takes its place when all went well: the whole of it or nothing."""
    temporary: Path | None = None
    try:
        fd, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        os.close(fd)
        temporary = Path(name)
        yield temporary
        # As any other file of the user's: a temporary one is for its owner alone.
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(file)
    except OSError as error:
        raise FlatoutError(f"{str(file)!r} cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
