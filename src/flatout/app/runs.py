"""What is stored: one line a run, and tidying up."""

from __future__ import annotations

import re
from pathlib import Path

from flatout.errors import FlatoutError
from flatout.store.directory import prune, run_paths
from flatout.store.run import RunLine, run_line

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def list_runs(root: Path | None = None) -> tuple[RunLine, ...]:
    """Every run under `root` (default: here, and the fallback place), newest first."""
    return tuple(run_line(path) for path in run_paths(root))


def prune_runs(root: Path | None, keep: int | None, older_than: str | None) -> tuple[str, ...]:
    """Delete runs and return their ids. One of `keep` and `older_than` must be given: nothing goes by default."""
    if keep is None and older_than is None:
        raise FlatoutError("--prune needs --keep N or --older-than 7d, so that it is clear what may go")
    gone = prune(root, keep, None if older_than is None else parse_duration_s(older_than))
    return tuple(path.name for path in gone)


def parse_duration_s(text: str) -> float:
    """A duration such as 90s, 30m, 12h, 7d or 2w."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip().lower())
    if not match:
        raise FlatoutError(f"--older-than must be a number with s, m, h, d or w, such as 7d; got {text!r}")
    return float(match[1]) * _UNITS_S[match[2]]
