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

from flatout.problems.cadence.pause_costs import (
    exposed_ms,
    gain_if_rarer,
    interval_factor,
    is_image,
    is_progress,
    logged_ms,
    pause_ms,
    prepared_ms,
)
from flatout.problems.cadence.pauses import find_pictures, how_often
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.problems.prediction import WORTH
from flatout.records.evidence import Evidence
from flatout.records.message import Message, message
from flatout.records.report import PauseSite
from flatout.source.code import Code, call_path
from flatout.source.syntax.nodes import short_text

CODE = "CA604"
REMEDY = "cadence.logging"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    sites = [site for site in run.report.pauses if site.op == "logging" and not is_progress(run, site)]
    count, total_s = sum(site.count for site in sites), sum(site.total_s for site in sites)
    if count < 2:
        return
    prepared = prepared_ms(run, sites)
    logged = logged_ms(run, sites, pause_ms(run, "logging")) + prepared
    each_ms = 1e3 * total_s / count + prepared * run.report.run.steps / count
    ms = exposed_ms(run, logged, each_ms)
    if ms < WORTH * run.step_ms:
        return
    times = interval_factor(run, ms)
    gain = gain_if_rarer(run, ms, times, "logging")
    worst = max(sites, key=lambda site: site.total_s)
    per_step = count / max(1, run.report.run.steps)
    yield FoundInRun(
        location=worst.location,
        evidence={
            "logging_share": round(ms / run.step_ms, 4),
            "calls": count,
            "calls_per_step": round(per_step, 3),
            "ms_each": round(each_ms, 3),
            "ms_longest": round(1e3 * max(site.max_s for site in sites), 3),
            "interval_times": times,
        },
        cause=message("ca604.cause", count=count, each_ms=each_ms, share=ms / run.step_ms),
        change=_change(run, worst, times),
        predicted_gain=gain,
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
        yield FoundInSource(
            place=pause.region.module.place(pause.node),
            cause=message("ca604.source_cause", code=short_text(pause.node, 40), often=how_often(pause)),
            change=message("ca604.source_change"),
            related=call_path(pause.region),
        )
