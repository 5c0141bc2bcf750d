"""Making the samples takes longer than training on them.

What it is: the training waits for batches, and no other problem of the input explains it. The time goes to lines of the
dataset, its transforms or the collate function.

Why the GPU idles: there is no batch to compute on.

How it shows in a run: a wait for data in each step, and lines that the workers, or the training process itself without
any, spend their time at.

The fix: make these lines cheaper, or do them less often: prepare the data once and store the result, cache what is
asked for again, read only what is used, work on arrays instead of single elements, move what can run in batches to the
device. More workers help as long as there are processors for them.

What to expect: at most the whole wait. Where most of it is a Python loop over elements or samples: what is left of the
loop when it is done at once.

When it is fine: the wait is short, or the data arrives no faster, as from an instrument or an environment.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, ReadyBatches
from flatout.model.measured import batch_ms
from flatout.model.prediction import can_promise, predict
from flatout.problems.found import KEEPS_FROM_HEALTH, FoundInRun
from flatout.problems.hot_lines import LOOP, HotLoop, lines_in, place_name
from flatout.problems.input.loading import cheaper_batches, find_sample_loop, main_nature
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "IN118"
GENERAL = True


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    wait_ms = run.starved_ms
    if not run.step_ms or wait_ms < KEEPS_FROM_HEALTH * run.step_ms or run.report.verdict.healthy:
        return
    edits = Edits((ReadyBatches(wait_ms),), is_most=True)
    gain = predict(run, edits) if can_promise(run) else None
    # Batches that lie ready are taken over in that time, or made as quickly as they could be.
    if can_promise(run) and (gain is None or 1 - 1 / gain.mid < KEEPS_FROM_HEALTH):
        return
    use = run.training_loader
    in_workers = use is not None and use.workers > 0
    lines = run.worker_lines if in_workers else tuple(lines_in(run, "data"))
    worst = max(lines, key=lambda line: line.ms, default=None)
    figures = {"wait_ms": wait_ms, "step_ms": run.step_ms}
    nature = main_nature(run)
    # Native code does the same for each element or sample, whoever calls it.
    loop = find_sample_loop(run) if nature is not None and nature[0] == "python" else None
    cause = (
        message("in118.cause", **figures)
        if worst is None
        else message(
            "in118.cause_worker" if in_workers else "in118.cause_line",
            line=place_name(worst.location),
            function=worst.function,
            share=worst.share if in_workers else worst.ms / max(run.phase("data").ms, 1e-9),
            **figures,
        )
    )
    told = cause if nature is None else message(f"in118.cause_{nature[0]}", cause=cause, share=nature[1])
    change = message("in118.change" if nature is None else f"in118.change_{nature[0]}")
    span = {} if loop is None else {"first": loop.loop.first, "last": loop.loop.last}
    yield FoundInRun(
        location=None if worst is None else worst.location,
        evidence={
            "wait_ms_per_step": round(wait_ms, 2),
            "wait_share": round(wait_ms / run.step_ms, 3),
            "workers": use.workers if use is not None else 0,
            **({} if worst is None else {"function": worst.function, "line_ms": round(worst.ms, 3)}),
            **({} if nature is None else {"nature": nature[0], "nature_share": round(nature[1], 3)}),
            **({} if loop is None else {LOOP: f"{loop.loop.first}-{loop.loop.last}"}),
        },
        cause=told if loop is None else message("in118.cause_loop", cause=told, share=loop.share, **span),
        change=change if loop is None else message("in118.change_loop", **span),
        edits=edits if loop is None else _do_at_once(run, loop) or edits,
    )


def _do_at_once(run: Evidence, hot: HotLoop) -> Edits | None:
    use = run.training_loader
    work_ms = None if use is None else batch_ms(run, use)
    if not work_ms:
        return None
    left_ms = [work_ms * (1.0 - (1.0 - left) * hot.share) for left in hot.left(of_sample=True)]
    return cheaper_batches(work_ms, left_ms)
