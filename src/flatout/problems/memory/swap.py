"""Pages of running processes are written to disk and read back.

What it is: memory is short, and pages of running processes are written to disk and read back.

Why the GPU idles: a page that has to come back from disk takes a thousand times longer than one in memory, and it is
the loader or the training process that waits for it.

How it shows in a run: swap in use rises during the run while processes wait for pages from disk (major faults).

The fix: fewer workers, a smaller cache, other programs off the machine: until the run fits without swap.

What to expect: steps as regular as without swap. How much faster depends on what waits for the pages, so no gain is
promised.

When it is fine: swap in use that does not move: something idle was swapped out long ago.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.found import FoundInRun
from flatout.problems.memory.growth import amount
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "ME707"
COMES_FROM = ("ME705",)
_LEAST_BYTES = 128 << 20
# Pages from disk a second: a handful is a program starting.
_LEAST_FAULTS = 20.0


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    used, faults = run.series.get("swap_used_bytes"), run.series.get("major_faults_per_s")
    if used is None or faults is None or not faults.values or not used.values:
        return
    grown, rate = max(used.values) - used.values[0], sum(faults.values) / len(faults.values)
    if grown < _LEAST_BYTES or rate < _LEAST_FAULTS:
        return
    yield FoundInRun(
        severity="high",
        evidence={"swapped_bytes": round(grown), "major_faults_per_s": round(rate, 1)},
        cause=message("me707.cause", swapped=amount(grown), faults=rate),
        change=message("me707.change"),
    )
