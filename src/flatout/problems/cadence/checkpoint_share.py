"""Writing checkpoints takes a large share of the run.

What it is: the training waits while `torch.save` or the like writes the model, too often or too much.

Why the GPU idles: saving copies the parameters to the host and writes them to disk; the next step starts when the
file is written.

How it shows in a run: time in `checkpoint`, with how often, how long in all and how long at most, by line.

How it shows in source: `torch.save`, `save_checkpoint` and the like in every step, conditional on nothing but the
rank, or in every few steps, where the interval is known.

The fix: save every k-th time (and at the end), or let a thread write a copy: `state = {k: v.cpu() for k, v in
model.state_dict().items()}`, then `threading.Thread(target=torch.save, args=(state, path)).start()`; with several
ranks `torch.distributed.checkpoint.async_save`. Optimizer state is twice the size of the model: leave it out of
"best" checkpoints.

What to expect: the share of the checkpoints divided by k, at the price of more lost work after a crash.

When it is fine: it takes less than 3% of the run.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cadence.pauses import (
    find_checkpoints,
    how_often,
    interval_factor,
    make_rarer,
    measure_pauses,
    pause_ms,
)
from flatout.problems.found import FoundInRun, FoundInSource, found_in_step
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.source.code import Code
from flatout.source.syntax.nodes import short_text

CODE = "CA603"
REMEDY = "checkpoint.async"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    sites = [site for site in run.report.pauses if site.op == "checkpoint"]
    pauses = measure_pauses(run, sites, pause_ms(run, "checkpoint"))
    if pauses is None:
        return
    times, share = interval_factor(run, pauses.ms), pauses.ms / run.step_ms
    period = run.report.run.steps / max(1, pauses.worst.count)
    yield FoundInRun(
        location=pauses.worst.location,
        evidence={
            "checkpoint_share": round(share, 4),
            "checkpoints": pauses.count,
            "seconds_each": round(pauses.each_ms * 1e-3, 4),
            "seconds_longest": round(pauses.longest_s, 4),
            "steps_between": round(period, 1),
            "interval_times": times,
        },
        cause=message("ca603.cause", count=pauses.count, each_ms=pauses.each_ms, share=share),
        change=message("ca603.change", steps=round(times * period), period=round(period)),
        edits=make_rarer("checkpoint", pauses.ms, times),
    )


def in_source(code: Code) -> Iterator[FoundInSource]:
    for pause in find_checkpoints(code):
        yield found_in_step(
            pause.region,
            pause.node,
            message("ca603.source_cause", code=short_text(pause.node, 40), often=how_often(pause)),
            message("ca603.source_change"),
            severity="high" if pause.period == 1 else "medium",
        )
