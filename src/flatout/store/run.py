"""A stored run, read when it is asked for."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from flatout.errors import FlatoutError
from flatout.store.directory import SUMMARY, is_recorded, size_bytes
from flatout.store.manifest import Manifest, read_manifest
from flatout.store.recording import Header, Recording, read_recording
from flatout.store.rows import Rows, read_rows

_LINES = ".lines.rec"


class StoredRun:
    """The manifest, the recordings of all watched processes, and what was sampled beside them.

    Raises FlatoutError if there is no run at `path`, or one of a schema unknown here. A file that cannot be read is
    left out and named in `unreadable`; the others are not affected.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.manifest: Manifest = read_manifest(self.path)
        self.unreadable: list[str] = []
        self._rows: dict[str, Rows | None] = {}

    @property
    def id(self) -> str:
        return self.manifest.id

    @property
    def records_at(self) -> Path:
        """Where the recordings are: while a run on a network disk lasts, in a local directory."""
        work = self.manifest.work
        return Path(work) if work and Path(work).is_dir() else self.path

    @property
    def source_until_unix_s(self) -> float:
        """A source file that is newer than this is not what ran. Of an imported run, none here is."""
        return -math.inf if self.manifest.imported else self.manifest.started_unix_s

    @cached_property
    def recordings(self) -> tuple[Recording, ...]:
        """Every process's recording, without the line sampler's."""
        return tuple(r for r in self._all if not r.path.name.endswith(_LINES))

    def lines_of(self, recording: Recording) -> Recording | None:
        """What the line sampler recorded beside this process's own recording."""
        return self._lines.get(_process(recording))

    @cached_property
    def _lines(self) -> dict[tuple[object, ...], Recording]:
        return {_process(r): r for r in self._all if r.path.name.endswith(_LINES)}

    @cached_property
    def _all(self) -> tuple[Recording, ...]:
        found: list[Recording] = []
        damaged: list[Path] = []
        like: Header | None = None
        for path in sorted((self.records_at / "proc").glob("*.rec")):
            try:
                recording = read_recording(path)
            except (FlatoutError, OSError):
                damaged.append(path)
                continue
            found.append(recording)
            like = like or recording.header
        # A second try by the table of a neighbour, since all processes of a run write the same.
        for path in damaged:
            try:
                found.append(read_recording(path, like))
            except (FlatoutError, OSError) as error:
                self.unreadable.append(str(error))
        return tuple(sorted(found, key=lambda recording: recording.path.name))

    def rows(self, source: str) -> Rows | None:
        """What was sampled under this name (gpu, host, processes …), or None if nothing was."""
        if source not in self._rows:
            self._rows[source] = self._read_rows(source)
        return self._rows[source]

    def _read_rows(self, source: str) -> Rows | None:
        path = self.records_at / "telemetry" / f"{source}.rows"
        if not path.exists():
            return None
        try:
            return read_rows(path)
        except (FlatoutError, OSError) as error:
            self.unreadable.append(str(error))
            return None

    @cached_property
    def summary(self) -> dict[str, Any] | None:
        """The stored summary, or None if there is none yet or it is not readable."""
        try:
            value = json.loads((self.path / SUMMARY).read_bytes())
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    @property
    def is_running(self) -> bool:
        return is_recorded(self.path, read_manifest(self.path))


def _process(recording: Recording) -> tuple[object, ...]:
    """What tells processes apart: a number may be used again in a long run, and on another host."""
    facts = recording.facts
    pid = facts.get("pid") or recording.path.name.partition("-")[0]
    return facts.get("host"), str(pid), facts.get("start_ns")


@dataclass(frozen=True, slots=True)
class RunLine:
    """A stored run in short. `state` is "broken" where flatout was killed before the end, or cannot read the run."""

    id: str
    path: str
    state: Literal["running", "finished", "broken"]
    size_bytes: int
    script: str = ""
    argv: tuple[str, ...] = ()
    started_unix_s: float | None = None
    steps: int | None = None
    samples_per_s: float | None = None
    exit_code: int | None = None
    bound: str | None = None
    healthy: bool | None = None
    problem: str | None = None


def run_line(path: Path) -> RunLine:
    """The run at `path`, also one that cannot be read."""
    try:
        run = StoredRun(path)
    except FlatoutError as error:
        return RunLine(path.name, str(path), "broken", 0, problem=str(error))
    manifest, summary = run.manifest, run.summary or {}
    verdict = _part(summary, "verdict")
    return RunLine(
        id=manifest.id,
        path=str(path),
        state="finished" if manifest.state == "finished" else "running" if run.is_running else "broken",
        size_bytes=size_bytes(path),
        script=script_name(manifest.argv),
        argv=manifest.argv,
        started_unix_s=manifest.started_unix_s,
        steps=_part(summary, "run").get("steps"),
        samples_per_s=_part(summary, "throughput").get("samples_per_s"),
        exit_code=manifest.exit_code,
        bound=verdict.get("bound"),
        healthy=verdict.get("healthy"),
    )


def _part(summary: dict[str, Any], name: str) -> dict[str, Any]:
    part = summary.get(name)
    return part if isinstance(part, dict) else {}


def script_name(argv: Sequence[str]) -> str:
    """The script's name, wherever it stands in the command."""
    named = next((word for word in argv if word.endswith(".py")), argv[0] if argv else "")
    return Path(named).name
