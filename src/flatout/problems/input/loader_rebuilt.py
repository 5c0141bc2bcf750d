"""The script makes a new DataLoader, or a new iterator of it, again and again.

What it is: the script makes a DataLoader (and often its dataset) inside the loop over epochs, or in the function that
evaluates, instead of once before it; or it takes each batch with `next(iter(loader))`, which begins an epoch for one
batch and discards the prefetched ones.

Why the GPU idles: each new loader lists its files and starts its workers again, each new iterator shuffles all indices,
and nothing is prefetched meanwhile.

How it shows in a run: many loaders with the same settings from the same line, or as many iterators as steps; the first
step of each waits many times longer than the others, and constructors run in the middle of the training.

How it shows in source: a DataLoader that is made inside the loop around the training, from nothing that changes there;
or `next(iter(loader))` in the step.

The fix: make dataset and loader once, before the loop, with `persistent_workers=True`. In a loop over steps keep the
iterator: `batches = iter(loader)`, then `next(batches)`, and a new one only at StopIteration.

What to expect: the start-up time disappears from the mean step; every step waits as the later ones of an epoch do.

When it is fine: the settings change each time (a growing batch, another crop), or a new loader costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, LessHost, LessTaking, NoStarts
from flatout.model.measured import batch_ms
from flatout.problems.found import WORTH, FoundInRun, FoundInSource, found_in_step, step_of
from flatout.problems.hot_lines import lines_in
from flatout.problems.input.loading import StartCost, is_per_batch, start_cost, without_starts
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.message import message
from flatout.source.code import Code
from flatout.source.loops import enclosing_loops, names_changed_in, repeats_training
from flatout.source.syntax.nodes import is_call, names_in, own_name

CODE = "IN106"
_OFTEN = 3


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    for use in run.loaders:
        if use.trains and is_per_batch(run):
            yield from _for_every_batch(run, use)
        elif use.made >= _OFTEN:
            yield from _for_every_epoch(run, use)


def _for_every_epoch(run: Evidence, use: LoaderUse) -> Iterator[FoundInRun]:
    start = start_cost(run, use) or StartCost(0.0, 0.0, use.made)
    # Constructors between the steps, and the line that makes the loader: the dataset's own start.
    between = lines_in(run, "other", "eval")
    made_ms = sum(line.ms for line in between if line.function == "__init__" or line.location == use.made_at)
    yield FoundInRun(
        location=use.made_at,
        evidence={
            "loaders_made": use.made,
            "num_workers": use.workers,
            "start_ms_per_step": round(start.per_step_ms, 3),
            "constructors_ms_per_step": round(made_ms, 3),
        },
        cause=message("in106.cause", loaders=use.made, start_ms=start.per_step_ms + made_ms, step_ms=run.step_ms),
        change=message("in106.change_persistent" if use.workers else "in106.change"),
        edits=Edits((without_starts(use, start), LessHost(made_ms, "other"))),
    )


def _for_every_batch(run: Evidence, use: LoaderUse) -> Iterator[FoundInRun]:
    work_ms, length = batch_ms(run, use), use.settings.get("dataset_len")
    is_one_batch = isinstance(length, int) and use.batch_size is not None and length <= use.batch_size
    if work_ms is None or is_one_batch or run.starved_ms < WORTH * run.step_ms:
        return
    # The line that most of the waiting is seen under. There workers are ended, when their iterator is dropped.
    asked = max(lines_in(run, "data"), key=lambda line: line.ms, default=None)
    asked_at = None if asked is None else asked.location
    ending_ms = sum(line.ms for line in lines_in(run, "forward", "other") if line.location == asked_at)
    if use.workers:
        # They work ahead again, and are no longer ended.
        edits = Edits((NoStarts(run.phase("data").ms, never=True), LessHost(ending_ms, "forward")))
    else:
        edits = Edits((LessTaking(run.phase("data").ms - work_ms),))
    yield FoundInRun(
        location=asked_at or use.made_at,
        evidence={
            "iterators": use.epochs,
            "loaders_made": use.made,
            "steps": run.report.run.steps,
            "data_ms_per_step": round(run.phase("data").ms, 2),
            "loading_ms_per_step": round(work_ms, 2),
        },
        cause=message(
            "in106.iterators", iterators=use.epochs, steps=run.report.run.steps, data_ms=run.phase("data").ms
        ),
        change=message("in106.keep_iterator"),
        edits=edits,
    )


def in_source(code: Code) -> Iterator[FoundInSource]:
    for made in code.loaders:
        around = [
            loop for loop in enclosing_loops(made.call, made.function) if repeats_training(loop, made.function, code)
        ]
        # Folds, stages and growing batches need another loader each time.
        if around and not names_in(made.call) & names_changed_in(around):
            place = made.function.module.at(around[-1].lineno)
            yield FoundInSource(
                place=made.place,
                cause=message("in106.source_cause", line=place.line),
                loader_setting="persistent_workers",
                change=message("in106.change_persistent"),
            )
    for region, _, call in code.calls_each_step("next"):
        given = call.args[0] if call.args else None
        if is_call(given, "iter") and given.args and "loader" in own_name(given.args[0]).lower():
            cause = message("in106.source_next", step=step_of(region))
            yield found_in_step(region, call, cause, message("in106.keep_iterator"), severity="high")
