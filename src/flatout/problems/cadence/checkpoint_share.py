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

from flatout.problems.cadence.pause_costs import exposed_ms, gain_if_rarer, interval_factor, pause_ms, prepared_ms
from flatout.problems.cadence.pauses import find_checkpoints, how_often
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.problems.prediction import WORTH
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.source.code import Code, call_path
from flatout.source.syntax.nodes import short_text

CODE = "CA603"
REMEDY = "checkpoint.async"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    sites = [site for site in run.report.pauses if site.op == "checkpoint"]
    count, total_s = sum(site.count for site in sites), sum(site.total_s for site in sites)
    if count < 2:
        return  # one at the end, or at the beginning, is no matter of how often
    prepared = prepared_ms(run, sites)
    each_ms = 1e3 * total_s / count + prepared * run.report.run.steps / count
    ms = exposed_ms(run, pause_ms(run, "checkpoint") + prepared, each_ms)
    if ms < WORTH * run.step_ms:
        return
    times = interval_factor(run, ms)
    gain = gain_if_rarer(run, ms, times, "checkpoints")
    worst = max(sites, key=lambda site: site.total_s)
    period = run.report.run.steps / max(1, worst.count)
    yield FoundInRun(
        location=worst.location,
        evidence={
            "checkpoint_share": round(ms / run.step_ms, 4),
            "checkpoints": count,
            "seconds_each": round(each_ms * 1e-3, 4),
            "seconds_longest": round(max(site.max_s for site in sites), 4),
            "steps_between": round(period, 1),
            "interval_times": times,
        },
        cause=message("ca603.cause", count=count, each_ms=each_ms, share=ms / run.step_ms),
        change=message("ca603.change", steps=round(times * period), period=round(period)),
        predicted_gain=gain,
    )


def in_source(code: Code) -> Iterator[FoundInSource]:
    for pause in find_checkpoints(code):
        yield FoundInSource(
            severity="high" if pause.period == 1 else "medium",
            place=pause.region.module.place(pause.node),
            cause=message("ca603.source_cause", code=short_text(pause.node, 40), often=how_often(pause)),
            change=message("ca603.source_change"),
            related=call_path(pause.region),
        )
