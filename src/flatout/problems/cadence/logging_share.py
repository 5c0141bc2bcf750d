"""Logging takes a large share of the run.

What it is: scalars, images, figures or log lines are written so often that the training waits for them.

Why the GPU idles: what is logged is computed, encoded and written by the process that launches the GPU's work; reading
a value from the GPU for it is a sync as well.

How it shows in a run: time in `logging` (TensorBoard, W&B, matplotlib, image files, `logging`), by line.

How it shows in source: images, figures, histograms or videos written in every step (`add_image`, `add_histogram`,
`savefig`, `imwrite`, `wandb.Image`), conditional on nothing but the rank or the writer; or in every few steps.

The fix: log every k-th step; collect scalars on the GPU and write them together; write fewer images, or only with an
evaluation.

What to expect: the share of the logging divided by k.

When it is fine: it takes less than 3% of the step, or the GPU is busy meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cadence.pauses import (
    find_pictures,
    how_often,
    interval_factor,
    is_image,
    is_progress,
    logged_ms,
    make_rarer,
    measure_pauses,
    pause_ms,
)
from flatout.problems.found import FoundInRun, FoundInSource, found_in_step
from flatout.records.evidence import Evidence
from flatout.records.message import Message, message
from flatout.records.report import PauseSite
from flatout.source.code import Code
from flatout.source.syntax.nodes import short_text

CODE = "CA604"
REMEDY = "cadence.logging"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    sites = [site for site in run.report.pauses if site.op == "logging" and not is_progress(run, site)]
    pauses = measure_pauses(run, sites, logged_ms(run, sites, pause_ms(run, "logging")))
    if pauses is None:
        return
    times, share = interval_factor(run, pauses.ms), pauses.ms / run.step_ms
    yield FoundInRun(
        location=pauses.worst.location,
        evidence={
            "logging_share": round(share, 4),
            "calls": pauses.count,
            "calls_per_step": round(pauses.count / max(1, run.report.run.steps), 3),
            "ms_each": round(pauses.each_ms, 3),
            "ms_longest": round(1e3 * pauses.longest_s, 3),
            "interval_times": times,
        },
        cause=message("ca604.cause", count=pauses.count, each_ms=pauses.each_ms, share=share),
        change=_change(run, pauses.worst, times),
        edits=make_rarer("logging", pauses.ms, times),
    )


def _change(run: Evidence, worst: PauseSite, times: int) -> Message:
    if is_image(run, worst):
        return message("ca604.change_images", times=times)
    period = run.report.run.steps / max(1, worst.count)
    if period <= 1.5:
        return message("ca604.change_each_step", times=times)
    return message("ca604.change", steps=round(times * period), period=round(period))


def in_source(code: Code) -> Iterator[FoundInSource]:
    for pause in find_pictures(code):
        yield found_in_step(
            pause.region,
            pause.node,
            message("ca604.source_cause", code=short_text(pause.node, 40), often=how_often(pause)),
            message("ca604.source_change"),
        )
