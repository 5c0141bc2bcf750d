"""What is stored: one line a run, and tidying up."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from flatout.errors import FlatoutError
from flatout.store.directory import prune, run_paths
from flatout.store.run import StoredRun

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


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


def stored_runs(root: Path | None = None) -> tuple[RunLine, ...]:
    """Every run under `root` (default: here, and the fallback place), newest first."""
    return tuple(run_line(path) for path in run_paths(root))


def prune_runs(root: Path | None, keep: int | None, older_than: str | None) -> tuple[str, ...]:
    """Delete runs and return their ids. One of `keep` and `older_than` must be given: nothing goes by default."""
    if keep is None and older_than is None:
        raise FlatoutError("--prune needs --keep N or --older-than 7d, so that it is clear what may go")
    gone = prune(root, keep, None if older_than is None else seconds(older_than))
    return tuple(path.name for path in gone)


def seconds(text: str) -> float:
    """A duration such as 90s, 30m, 12h, 7d or 2w."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip().lower())
    if not match:
        raise FlatoutError(f"--older-than must be a number with s, m, h, d or w, such as 7d; got {text!r}")
    return float(match[1]) * _UNITS_S[match[2]]


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
        size_bytes=run.size_bytes,
        script=_script(manifest.argv),
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


def _script(argv: Sequence[str]) -> str:
    """The script's name, wherever it stands in the command."""
    named = next((word for word in argv if word.endswith(".py")), argv[0] if argv else "")
    return Path(named).name
