"""How a trial ended, and why: by its exit, by what the kernel did to it, and by its last words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flatout.diagnose.resources import oom_kill
from flatout.records.evidence import OomKill
from flatout.records.trial import Ending
from flatout.store.run import StoredRun
from flatout.trials.process import Exit

# Of what a script prints, the end is read.
OUTPUT_BYTES = 4 << 20
_GIB = 1 << 30
_KILLED = 128 + 9
_NAMES, _OF_WORKER = {"main": "the training", "worker": "a loader's worker"}, "DataLoader worker"
_OF_MEMORY = re.compile(r"out ?of ?memory|MemoryError|DefaultCPUAllocator", re.I)
_ERROR = re.compile(r"[\w.]*(Error|Exception|Interrupt|Exit)\b")
# Torch puts it before the last words of a rank.
_RANKED = re.compile(r"\[rank\d+\]: ?")


def how_it_ended(
    ended: Exit, run: StoredRun, is_stopped: bool, is_trained: bool, losses: Sequence[float | None], output: Path
) -> tuple[Ending, str]:
    """`is_stopped`: it was told to stop, after its steps."""
    if ended.cut == "out of time" and is_trained:
        return "out of time", f"cut off after {ended.wall_s:.0f} s"
    if ended.cut == "out of memory":
        return "out of memory", f"cut off after {ended.wall_s:.0f} s, when hardly any memory was left"
    if ended.cut:
        return ended.cut, f"cut off after {ended.wall_s:.0f} s"  # type: ignore[return-value]
    if ended.code and not is_stopped:
        return _failed(ended.code, run, _last_words(output))
    if not is_trained:
        return "not trained", "no optimizer made a step"
    if any(one is not None and not np.isfinite(one) for one in losses):
        first = next(place for place, one in enumerate(losses) if one is not None and not np.isfinite(one))
        return "not finite", f"the loss of pass {first + 1} is {losses[first]}"
    return ("stopped" if is_stopped else "finished"), ""


def tail(output: Path) -> str:
    try:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - OUTPUT_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _failed(code: int, run: StoredRun, last: str) -> tuple[Ending, str]:
    killed = oom_kill(run)
    if killed is not None:
        who = _NAMES.get(_victim(code, killed, last), "a process of it")
        limit = _limit_bytes(run)
        within = f", {limit / _GIB:.1f} GiB are all there may be here" if limit is not None else ""
        return "out of memory", f"the kernel killed {who} for want of memory{within}"
    is_memory = code == _KILLED or _OF_MEMORY.search(last)
    return "out of memory" if is_memory else "crashed", last or f"exit code {code}"


def _victim(code: int, killed: OomKill, last: str) -> str:
    """A worker's end is an error of the training soon after, often before the next sample of what lives."""
    return "main" if code == _KILLED else "worker" if _OF_WORKER in last else killed.role or ""


def _limit_bytes(run: StoredRun) -> float | None:
    """Of the container's memory."""
    rows = run.rows("cgroup")
    known = [] if rows is None else [one for one in rows.column("memory_limit_bytes").tolist() if np.isfinite(one)]
    return known[-1] if known else None


def _last_words(output: Path) -> str:
    """The error that ended it. Of several ranks it is the first: the others fail because that one is gone."""
    lines = [line.strip() for line in tail(output).splitlines() if line.strip()]
    ranked = [_RANKED.sub("", line) for line in lines if _RANKED.match(line)]
    of_ranks = [line for line in ranked if _ERROR.match(line)]
    errors = of_ranks[:1] or [line for line in lines if _ERROR.match(line)]
    return (errors or lines or [""])[-1][:300]
