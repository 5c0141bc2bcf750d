"""`flatout export` and `import`: a stored run in the forms that other tools read, and as a bundle to take elsewhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from flatout import __version__
from flatout.diagnose.export import make_scalars, make_tables, make_trace
from flatout.diagnose.source_join import examine_run_and_source
from flatout.diagnose.summary import examine_run
from flatout.errors import FlatoutError
from flatout.problems.catalogue import problems
from flatout.records.atomic import atomic_file
from flatout.records.message import message
from flatout.records.report import RunReport, Snippet
from flatout.report.chrome_trace import to_chrome
from flatout.report.json import to_json
from flatout.report.sarif import run_sarif
from flatout.report.tracking_tools import check_parquet, check_tool, csv_blocks, write_metrics, write_parquet
from flatout.store.bundle import Limits, look_through, pack, unpack
from flatout.store.directory import DEFAULT_ROOT, SUMMARY, find_run
from flatout.store.manifest import SCHEMA, Manifest, write_json, write_manifest
from flatout.store.redaction import redact
from flatout.store.run import StoredRun
from flatout.words.codec import FACTS, decode


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


def export_sarif(name: str | None, file: Path | None = None) -> str:
    """The text, or nothing where it was written to a file."""
    run = open_run(name)
    report = examine_run_and_source(run).report
    text = run_sarif(report, run.manifest.cwd, __version__, {problem.code: problem.text for problem in problems()})
    if file is None:
        return text
    with open_atomic(file) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return ""


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


# Bundles. What comes from a stranger is not believed: its manifest is checked field by field, its verdict is made anew
# from its records, and a run that cannot be judged is not kept.

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_MOST_SNIPPETS, _LONGEST_SNIPPET = 200, 1000
_DEEPEST = 20
# What a manifest says of the process and the folder that recorded the run.
_OF_ITS_MACHINE = ("state", "pid", "pid_start", "work", "imported")
# The end of the year 9999, beyond which no calendar goes.
_LATEST_UNIX_S = 253_402_300_800.0


def export_bundle(name: str | None, file: Path | None) -> tuple[Path, int]:
    """Where the bundle was written and its size in bytes."""
    run = open_run(name)
    file = file or Path(f"{run.path.resolve().name}.flatout.tar.gz")
    return file, pack(run, file)


def import_bundle(file: Path, root: Path | None, name: str | None, most_gb: float | None) -> StoredRun:
    """The run of the bundle, stored under `root`. Nothing is left there if it is refused."""
    if name is not None and not _NAME.fullmatch(name):
        raise FlatoutError(f"--name may hold letters, digits, '_', '-' and '.', got {name!r}")
    if most_gb is not None and not 0 < most_gb <= 1e6:
        raise FlatoutError(f"--max-gb must be above 0, got {most_gb:g}")
    limits = Limits() if most_gb is None else Limits(total_bytes=int(most_gb * 1e9))
    try:
        with file.open("rb") as bundle:
            return _store_bundle(bundle, file, (root or DEFAULT_ROOT).absolute(), name, limits)
    except OSError as error:
        # It may be the folder it should go to that is at fault.
        where = "" if str(error.filename) in ("None", str(file)) else f": {str(error.filename)!r}"
        raise FlatoutError(f"{str(file)!r} cannot be imported: {error.strerror or error}{where}") from error


def _store_bundle(bundle: IO[bytes], file: Path, root: Path, name: str | None, limits: Limits) -> StoredRun:
    contents = look_through(bundle, str(file), limits)
    manifest = _manifest(contents.manifest, str(file))
    target = root / (name or re.sub(r"[^A-Za-z0-9_.-]+", "-", manifest.id).strip("-.")[:100] or "run")
    if target.exists():
        raise FlatoutError(f"there is a run {target.name!r} already in {str(root)!r}: give another --name")
    manifest = replace(manifest, id=target.name)
    root.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(root).free
    if contents.total_bytes > free:
        raise FlatoutError(f"{str(file)!r} unpacks to {contents.total_bytes:,} bytes, and {free:,} are free here")
    folder = Path(tempfile.mkdtemp(dir=root, prefix=".importing-"))
    try:
        unpack(bundle, str(file), folder, limits)
        write_manifest(folder, manifest)
        write_json(folder / SUMMARY, redact(to_json(_judge_records(folder, file, contents.summary))))
        os.rename(folder, target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return StoredRun(target)


def _judge_records(folder: Path, file: Path, summary: bytes | None) -> RunReport:
    """Made from the records by this flatout. It also shows that they can be read at all."""
    try:
        report = examine_run(StoredRun(folder)).report
    except Exception as error:
        # Whatever a crafted record makes our readers stumble over; the run would stumble over it each time.
        words = f"{type(error).__name__}: {error}"
        raise FlatoutError(f"{str(file)!r} holds records that cannot be judged ({_clean(words)[:200]})") from error
    return replace(report, snippets=report.snippets or _snippets(summary))


def _manifest(data: bytes, file: str) -> Manifest:
    """Only what has the right type, and nothing that would lead to other files or processes of this machine."""
    value = _object(data)
    if value.get("schema") != SCHEMA:
        raise FlatoutError(
            f"{file!r} has a manifest of schema {_clean(str(value.get('schema')))[:40]!r}, this flatout reads {SCHEMA}"
        )
    try:
        known = {name: _clean_values(item) for name, item in value.items() if name not in (*_OF_ITS_MACHINE, FACTS)}
        manifest = decode(Manifest, known)
        _check_seconds(manifest.started_unix_s, manifest.ended_unix_s, manifest.wall_s)
    except (TypeError, ValueError) as error:
        raise FlatoutError(f"{file!r} has a manifest that is not one of a run: {_clean(str(error))[:200]}") from error
    # Nobody here records it any more.
    return replace(manifest, state="finished", imported=True, notices=(*manifest.notices, message("run.imported")))


def _object(data: bytes) -> dict[str, Any]:
    """A JSON object, or an empty one: text that is deeply nested on purpose is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _snippets(summary: bytes | None) -> tuple[Snippet, ...]:
    """The text of the lines that cost most: there is no other source of it here."""
    found = []
    items = _object(summary or b"{}").get("snippets")
    for item in items[:_MOST_SNIPPETS] if isinstance(items, list) else ():
        try:
            snippet = decode(Snippet, {name: _clean_values(item[name]) for name in ("location", "text")})
        except (KeyError, TypeError, ValueError):
            continue
        found.append(replace(snippet, text=snippet.text[:_LONGEST_SNIPPET]))
    return tuple(found)


def _check_seconds(*values: float | None) -> None:
    """Each is a time of a calendar, or how long something took."""
    for number in values:
        if number is not None and not 0.0 <= number < _LATEST_UNIX_S:
            raise ValueError(f"{number!r:.20} where seconds should be")


def _clean(text: str) -> str:
    """No sequence that a terminal would obey, nor signs that turn the writing around, nor halves of a sign."""
    return _CONTROL.sub("?", text)


def _clean_values(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        raise ValueError(f"values within values, more than {_DEEPEST} deep")
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, dict):
        return {_clean(str(name)): _clean_values(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list):
        return [_clean_values(item, depth + 1) for item in value]
    return value
