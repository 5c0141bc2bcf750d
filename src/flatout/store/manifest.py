"""The manifest of a run: what was started, when, and how it ended. Small, and replaced as a whole."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from flatout.errors import FlatoutError
from flatout.records.atomic import PRIVATE, write_atomic
from flatout.records.message import Message
from flatout.store.redaction import redact, redact_argv
from flatout.words.codec import decode, encode

SCHEMA = 1
NAME = "manifest.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """`wall_s` is measured by a clock that never steps back; `pid`, `pid_start` and `host` name who watches."""

    id: str
    argv: tuple[str, ...]
    cwd: str
    started_unix_s: float
    ended_unix_s: float | None = None
    state: Literal["running", "finished"] = "running"
    exit_code: int | None = None
    python: str | None = None
    flatout: str | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    notices: tuple[Message, ...] = ()
    wall_s: float | None = None
    pid: int | None = None
    pid_start: str | None = None
    host: str | None = None
    # Where the recordings are while the run lasts, if not in the run directory itself.
    work: str | None = None
    # Whether it came in a bundle: then the files it names are not those of this machine, and are never opened.
    imported: bool = False


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest in `folder` at one stroke. Secrets are taken out here, whoever calls."""
    if (folder / NAME).exists():
        _load(folder / NAME)  # never over one that we cannot read
    value = redact(encode(manifest, only_finite=False))
    value["argv"] = list(redact_argv(manifest.argv))
    write_json(folder / NAME, {"schema": SCHEMA, **value})


def read_manifest(folder: Path) -> Manifest:
    value = _load(folder / NAME)
    try:
        return decode(Manifest, value, strict=False)
    except TypeError as error:
        raise FlatoutError(
            f"{folder / NAME} lacks what a manifest needs ({error}); remove the run or restore the file"
        ) from error


def write_json(path: Path, value: object) -> None:
    """Write a JSON file so that a reader sees the old one or the new one, never half of it."""
    text = json.dumps(_finite(value), indent=1, allow_nan=False, default=str)
    write_atomic(path, f"{text}\n", mode=PRIVATE)


def _finite(value: Any) -> Any:
    """JSON has no NaN: what is not measured is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _load(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise FlatoutError(f"{path.parent} is not a run: it has no {path.name}") from error
    except (OSError, ValueError) as error:
        raise FlatoutError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        found = value.get("schema") if isinstance(value, dict) else None
        raise FlatoutError(
            f"{path} has schema {found!r}, this flatout reads {SCHEMA}: open it with the flatout that wrote it"
        )
    return value
