"""The kernel killed a process because memory ran out.

What it is: the container or the machine ran out of memory and the kernel killed a process with SIGKILL: a loader worker
("DataLoader worker is killed by signal: Killed"), or the training itself (exit code 137).

Why the GPU idles: the run is over, or its loader is.

How it shows in a run: the container's count of such kills went up while the run lasted; the process that was gone then
is named with what it last held.

The fix: by who was killed and what had grown: fewer workers, a smaller cache in the dataset, a smaller
`prefetch_factor`, no growing lists.

What to expect: a run that reaches its end.

When it is fine: never; but the kill may have hit a neighbour in the same container.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.found import FoundInRun
from flatout.problems.memory.growth import amount, memory_limit
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "ME705"
_WHO = {"main": message("me705.main"), "worker": message("me705.worker"), "other": message("me705.other")}
_CHANGE = {
    "main": message("me705.change_main"),
    "worker": message("me705.change_worker"),
    "other": message("me705.change_other"),
}


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    kill = run.oom_kill
    if kill is None or kill.kills < 1:
        return
    role, limit = kill.role or "other", memory_limit(run)
    process = _WHO[role]
    if kill.rss_bytes:
        process = message("me705.process_held", process=process, size=amount(kill.rss_bytes))
    if limit is not None:
        process = message("me705.process_limit", process=process, limit=limit.words, size=amount(limit.bytes))
    yield FoundInRun(
        severity="high",
        evidence={
            "oom_kills": kill.kills,
            "pid": kill.pid or 0,
            "role": role,
            "resident_bytes": round(kill.rss_bytes or 0.0),
        },
        cause=message("me705.cause", process=process),
        change=_CHANGE[role],
    )
