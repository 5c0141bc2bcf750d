"""Work of every n-th step takes a large share of the run.

What it is: under `if step % n == 0:` the script draws samples from its model, makes previews, computes metrics or
statistics that nothing in the training uses, and that takes long.

Why the GPU idles: it does not always; but what it does then trains nothing.

How it shows in a run: the calls that led to where the training thread was seen go through such an `if`, for a tenth of
the time or more. Evaluations, checkpoints and logging that are known as such have problems of their own.

The fix: raise n, take fewer samples or a smaller preview, or do it at the end of an epoch.

What to expect: what it takes, divided by how much less often it is done.

When it is fine: the training needs it so often, as a buffer that is filled or a target that is computed anew; where the
loop reads a result, nothing is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from flatout.model.edits import Edits, LessHost
from flatout.problems.cadence.pauses import Block, exposed_ms, interval_factor, paths_through, periodic_blocks
from flatout.problems.found import KEEPS_FROM_HEALTH, FoundInRun
from flatout.problems.hot_lines import place_name
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.report import Location

CODE = "CA606"
COMES_FROM = ("CA601", "CA603", "CA604", "CA605")


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    blocks = [(file, block) for file, text in run.files.items() for block in periodic_blocks(text)]
    paths = paths_through(run, blocks)
    ms = exposed_ms(run, sum(path.ms for path in paths), each_ms=0.0)
    if ms < KEEPS_FROM_HEALTH * run.step_ms:
        return
    by_line: dict[Location, float] = defaultdict(float)
    by_phase: dict[str, float] = defaultdict(float)
    for path in paths:
        by_phase[path.phase] += path.ms
        # The line in the block itself: what it calls may serve the training as well.
        by_line[next(place for place in path.lines if any(_holds(block, place) for block in blocks))] += path.ms
    worst = max(by_line, key=lambda place: by_line[place])
    times = interval_factor(run, ms)
    part = (1 - 1 / times) * ms / sum(by_phase.values())
    yield FoundInRun(
        location=worst,
        evidence={
            "work_ms_per_step": round(ms, 2),
            "work_share": round(ms / run.step_ms, 4),
            "interval_times": times,
        },
        cause=message("ca606.cause", line=place_name(worst), ms=ms, step_ms=run.step_ms),
        change=message("ca606.change", times=times),
        edits=Edits(tuple(LessHost(part * phase_ms, phase) for phase, phase_ms in by_phase.items())),
    )


def _holds(block: Block, place: Location) -> bool:
    file, lines = block
    return place.file == file and place.line in lines
