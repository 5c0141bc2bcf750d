"""Work of the script takes longer with every step, since it goes over everything so far.

What it is: in each step the script does something with all that it has collected since the run or the epoch began: a
metric of all predictions, `torch.cat` of a growing list, the mean of a whole history, hooks that are registered again
in every epoch. Step n takes n times as long for it, and n steps take n times n.

Why the GPU idles: the training thread is at it between two steps, and launches nothing meanwhile.

How it shows in a run: the time of a step outside of the passes rises with the number of the step, from the start of
the run or of each epoch, and falls only where that begins again; the passes do not rise with it.

The fix: add only what is new. Keep sums and counts (a confusion matrix, a running mean) instead of all values, a
`deque(maxlen=n)` instead of a list, remove hooks when they have done their work (`handle.remove()`), or compute it once
at the end of the epoch.

What to expect: what it takes beyond the first step. As it grows on, a longer run gains more than this one.

When it is fine: it is meant to grow and stays small beside the step, or stops growing soon.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, LessHost
from flatout.problems.found import KEEPS_FROM_HEALTH, FoundInRun
from flatout.problems.host.script_work import find_work
from flatout.problems.hot_lines import place_name
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "HO415"
# Of looks at the device's queue, from which on it follows the host.
_DRY = 0.3
_CAUSES = {"run": "ho415.cause_run", "epoch": "ho415.cause_epoch"}


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    work = run.growing_work
    if work is None or (run.on_gpu and (run.drained_share or 0.0) < _DRY):
        return
    grown_ms = sum(work.grown_ms.values())
    if grown_ms < KEEPS_FROM_HEALTH * run.step_ms:
        return
    # The line that takes longer most may serve several: where all of that work divides, it can be changed.
    pieces = [piece for piece in find_work(run) if work.location in piece.lines]
    location, function = (pieces[0].location, pieces[0].function) if pieces else (work.location, work.function)
    yield FoundInRun(
        location=location,
        evidence={
            "first_ms": round(work.first_ms, 2),
            "last_ms": round(work.last_ms, 2),
            "steps": round(work.steps),
            "since": work.since,
            "grown_ms_per_step": round(grown_ms, 2),
            "function": function,
        },
        cause=message(
            _CAUSES[work.since],
            first_ms=work.first_ms,
            last_ms=work.last_ms,
            steps=work.steps,
            function=function,
            line=place_name(location),
        ),
        change=message("ho415.change"),
        edits=Edits(tuple(LessHost(ms, phase, is_sampled=False) for phase, ms in work.grown_ms.items())),
    )
