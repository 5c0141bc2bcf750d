"""`flatout logs`: a training log read, judged and shown; two of them compared."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flatout.diagnose.logs.reader import read_log
from flatout.diagnose.logs.readings import Pattern
from flatout.diagnose.logs.summary import compare_logs, summarise_log
from flatout.errors import FlatoutError
from flatout.launch.terminal import detect_stdout
from flatout.report.layout import Look
from flatout.report.logs import render, to_json


@dataclass(frozen=True, slots=True)
class LogsRequest:
    """What was asked for. One batch size counts for all files, else there must be one for each, in order."""

    files: Sequence[Path]
    pattern: str | None = None
    batch_sizes: Sequence[float] = ()
    as_json: bool = False
    quiet: bool = False
    verbose: bool = False


def run_logs(request: LogsRequest) -> str:
    """The text to print."""
    wanted = None if request.pattern is None else Pattern(request.pattern)
    sizes = _sizes(request.batch_sizes, len(request.files))
    logs = [summarise_log(read_log(file, wanted), size) for file, size in zip(request.files, sizes, strict=True)]
    comparison = compare_logs(logs[0], logs[1]) if len(logs) == 2 else None
    if request.as_json:
        return json.dumps(to_json(logs, comparison), indent=2, allow_nan=False) + "\n"
    screen = detect_stdout()
    look = Look(screen.width, screen.color, screen.unicode, quiet=request.quiet, verbose=request.verbose)
    return render(logs, comparison, look)


def _sizes(given: Sequence[float], files: int) -> list[float | None]:
    for size in given:
        if not (size >= 1 and math.isfinite(size)):
            raise FlatoutError(f"--batch-size must be at least 1, got {size:g}")
    if not given:
        return [None] * files
    if len(given) == 1:
        return [given[0]] * files
    if len(given) != files:
        raise FlatoutError(f"--batch-size is given {len(given)} times for {files} file{'s' if files != 1 else ''}")
    return list(given)
