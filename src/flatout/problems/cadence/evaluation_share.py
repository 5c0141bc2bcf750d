"""Evaluation takes a large share of the run.

What it is: the model is evaluated so often, or on so much data, that training is paused for a good part of the run.

Why the GPU idles: it does not idle, but it does not train either; where the evaluation's loader is slow, it idles as
well.

How it shows in a run: time in `eval`, which is counted to the step that follows, and the number of evaluations between
two training steps.

How it shows in source: a pass over a whole loader without gradients, in every training step or in every few, where the
interval is known.

The fix: evaluate every k-th time: `if (epoch + 1) % k == 0 or epoch + 1 == epochs:`. Keep the last evaluation, and
check what depends on the others: early stopping and "best checkpoint" see the model less often.

What to expect: the share of the evaluations divided by k. The interval proposed brings it to 2% of the run, or is ten
times what it was.

When it is fine: evaluation takes less than 3% of the run, or each result is needed immediately.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.problems.cadence.pauses import (
    find_evaluation,
    find_evaluations,
    how_often,
    improve_feed,
    interval_factor,
    is_slow_itself,
    make_rarer,
    pause_ms,
    steady_steps,
)
from flatout.problems.found import WORTH, FoundInRun, FoundInSource
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.source.code import Code
from flatout.source.training.jobs import loop_header

CODE = "CA601"
REMEDY = "cadence.eval"
# Fewer looks at the model than this would change what is known of the training.
_MOST_TIMES = 10


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    evaluation, ms = find_evaluation(run), _cadence_ms(run)
    if run.evaluations is None or ms < WORTH * run.step_ms:
        return
    # One after the last step is in no step, but its loader was read.
    often = max(run.evaluations.count, evaluation.loader.epochs if evaluation is not None else 0)
    if often < 2:
        return
    times = interval_factor(run, ms, _MOST_TIMES)
    all_ms, period = pause_ms(run, "eval"), run.report.run.steps / often
    each_s = 1e-3 * all_ms * steady_steps(run) / run.evaluations.count
    yield FoundInRun(
        location=run.evaluations.location,
        evidence={
            "eval_share": round(all_ms / run.step_ms, 4),
            "eval_s_each": round(each_s, 3),
            "evaluations": often,
            "steps_between": round(period, 1),
            "interval_times": times,
        },
        cause=message("ca601.cause", each_s=each_s, period=period, share=all_ms / run.step_ms),
        change=message("ca601.change", times=times, steps=round(times * period), period=round(period)),
        edits=make_rarer("eval", ms, times),
    )


def _cadence_ms(run: Evidence) -> float:
    """What evaluating so often costs a step. Where each evaluation is slow by itself, that comes first."""
    ms, evaluation = pause_ms(run, "eval"), find_evaluation(run)
    better = improve_feed(run, evaluation) if evaluation is not None else None
    if (
        evaluation is not None
        and better is not None
        and is_slow_itself(run, evaluation)
        and better.each_ms < 0.5 * evaluation.each_ms
    ):
        return ms * better.each_ms / evaluation.each_ms
    return ms


def in_source(code: Code) -> Iterator[FoundInSource]:
    for pause in find_evaluations(code):
        module = pause.region.module
        yield FoundInSource(
            severity="high" if pause.period == 1 else "medium",
            place=loop_header(pause.node, module) if isinstance(pause.node, ast.For) else module.place(pause.node),
            cause=message("ca601.source_cause", often=how_often(pause)),
            change=message("ca601.source_change"),
        )
