"""`flatout export bundle` and `flatout import`: a run on its way from one machine to another.

What comes from a stranger is not believed: its manifest is rebuilt field by field, its verdict is made anew from its
records, and a run that cannot be judged is not kept.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from flatout.diagnose.summary import examine_run
from flatout.errors import FlatoutError
from flatout.records.message import message
from flatout.records.report import Location, RunReport, Snippet
from flatout.report.json import to_json
from flatout.store.bundle import Limits, look_through, pack, unpack
from flatout.store.directory import DEFAULT_ROOT, SUMMARY, find_run
from flatout.store.manifest import SCHEMA, Manifest, write_json, write_manifest
from flatout.store.redaction import redact
from flatout.store.run import StoredRun

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_MOST_SNIPPETS, _LONGEST_SNIPPET = 200, 1000
_DEEPEST = 20
# The end of the year 9999, beyond which no calendar goes.
_LATEST_UNIX_S = 253_402_300_800.0


def export_bundle(name: str | None, file: Path | None) -> tuple[Path, int]:
    """Where the bundle was written and its size in bytes."""
    run = StoredRun(find_run(name or "last"))
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
    target = root / (name or _plain_name(manifest.id))
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
        return Manifest(
            id=_text(value["id"]),
            argv=tuple(_text(word) for word in _require(value["argv"], list)),
            cwd=_text(value["cwd"]),
            started_unix_s=_seconds(value["started_unix_s"]) or 0.0,
            ended_unix_s=_seconds(value.get("ended_unix_s")),
            # Nobody here records it any more.
            state="finished",
            exit_code=None if value.get("exit_code") is None else int(value["exit_code"]),
            python=None if value.get("python") is None else _text(value["python"]),
            flatout=None if value.get("flatout") is None else _text(value["flatout"]),
            environment=_clean_values(_require(value.get("environment", {}), dict)),
            notices=(*(_text(notice) for notice in _require(value.get("notices", []), list)), message("run.imported")),
            wall_s=_seconds(value.get("wall_s")),
            host=None if value.get("host") is None else _text(value["host"]),
            imported=True,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FlatoutError(f"{file!r} has a manifest that is not one of a run: {_clean(str(error))[:200]}") from error


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
            place = item["location"]
            found.append(
                Snippet(Location(_text(place["file"]), int(place["line"])), _text(item["text"])[:_LONGEST_SNIPPET])
            )
        except (KeyError, TypeError, ValueError):
            continue
    return tuple(found)


def _plain_name(wished: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", wished).strip("-.")[:100] or "run"


def _require(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.60} where another type should be")
    return value


def _text(value: object) -> str:
    return _clean(_require(value, str))


def _seconds(value: object) -> float | None:
    """A time of a calendar, or how long something took."""
    if value is None:
        return None
    number = float(_require(value, int | float))
    if not 0.0 <= number < _LATEST_UNIX_S:
        raise ValueError(f"{number:g} where seconds should be")
    return number


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
