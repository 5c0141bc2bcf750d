"""Progress output takes a large share of the step.

What it is: a line is printed, or a progress bar redrawn, at every step.

Why the GPU idles: writing to a terminal, a pipe or a network disk can take longer than launching a small step, and
while the main process writes it launches nothing.

How it shows in a run: `print` among the slowest lines, or the redrawing of a progress bar (`set_postfix` redraws at
each call) in `logging`.

How it shows in source: `print` or a logger's `info` in every step, conditional on nothing but the rank. Of several
only the first is named. A line that writes a GPU result is reported as a sync (SY301), and a progress bar is not
reported: it redraws by time.

The fix: print every k-th step; `tqdm(..., mininterval=1)`, and `set_postfix(..., refresh=False)`.

What to expect: the share of the output divided by k.

When it is fine: the steps are long, or the GPU is busy meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cadence.pauses import (
    exposed_ms,
    find_printed_lines,
    for_output_ms,
    interval_factor,
    is_progress,
    logged_ms,
    make_rarer,
    pause_ms,
    printed_ms,
)
from flatout.problems.found import WORTH, FoundInRun, FoundInSource, found_in_step, step_of
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.source.code import Code
from flatout.source.syntax.nodes import short_text

CODE = "CA605"
REMEDY = None


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    bars = [site for site in run.report.pauses if site.op == "logging" and is_progress(run, site)]
    costs = dict(printed_ms(run))
    made_ms = for_output_ms(run, costs)
    logging_ms = pause_ms(run, "logging")
    for bar in bars:
        costs[bar.location] = costs.get(bar.location, 0.0) + logged_ms(run, [bar], logging_ms)
    written_ms = sum(costs.values()) + made_ms
    # Short and at every step: a GPU with work in its queue does not notice.
    ms = exposed_ms(run, written_ms, each_ms=0.0)
    if not costs or ms < WORTH * run.step_ms:
        return
    times = interval_factor(run, ms)
    worst = max(costs, key=lambda place: costs[place])
    kind = "bar" if any(bar.location == worst for bar in bars) else "print"
    yield FoundInRun(
        location=worst,
        evidence={
            "output_ms_per_step": round(written_ms, 3),
            "output_share": round(ms / run.step_ms, 4),
            "line": run.text_at(worst)[:80],
        },
        cause=message(f"ca605.cause_{kind}", written_ms=written_ms, step_ms=run.step_ms),
        change=message("ca605.change_bar") if kind == "bar" else message("ca605.change_print", times=times),
        edits=make_rarer("logging", ms, times),
    )


def in_source(code: Code) -> Iterator[FoundInSource]:
    for pause in find_printed_lines(code):
        yield found_in_step(
            pause.region,
            pause.node,
            message("ca605.source_cause", code=short_text(pause.node, 40), step=step_of(pause.region)),
            message("ca605.source_change"),
            severity="low",
        )
