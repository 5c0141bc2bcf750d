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

import ast
from collections.abc import Iterator

from flatout.problems.cases import HERE, Case, SourceCase, loader, on_gpu, run, worker_cost
from flatout.problems.found import FoundInRun, FoundInSource, step_of
from flatout.problems.input.throughput import (
    Loading,
    StartCost,
    batch_ms,
    gain_at,
    gain_without_starts,
    is_per_batch,
    start_cost,
)
from flatout.problems.prediction import WORTH, by_removing
from flatout.records.evidence import Evidence, LoaderUse, Waiting
from flatout.records.message import message
from flatout.records.report import Gain, LineCost, Location
from flatout.source.code import Code, call_path
from flatout.source.loops import enclosing_loops, names_changed_in, repeats_training
from flatout.source.syntax.nodes import called_name, names_in

CODE = "IN106"
_OFTEN = 3
_BETWEEN = ("other", "eval")


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    for use in run.loaders:
        if use.trains and is_per_batch(run):
            yield from _for_every_batch(run, use)
        elif use.made >= _OFTEN:
            yield from _for_every_epoch(run, use)


def _for_every_epoch(run: Evidence, use: LoaderUse) -> Iterator[FoundInRun]:
    start = start_cost(run, use) or StartCost(0.0, 0.0, use.made)
    made_ms = _making_ms(run, use)
    gain = gain_without_starts(run, start, made_ms)
    if gain is None:
        return
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
        predicted_gain=gain,
    )


def _making_ms(run: Evidence, use: LoaderUse) -> float:
    """Constructors between the steps, and the line that makes the loader: the dataset's own start."""
    seen = run.all_lines or run.report.lines
    return sum(
        line.ms
        for line in seen
        if line.phase in _BETWEEN and (line.function == "__init__" or line.location == use.made_at)
    )


def _for_every_batch(run: Evidence, use: LoaderUse) -> Iterator[FoundInRun]:
    work_ms = batch_ms(run, use)
    if work_ms is None or _is_one_batch(use) or run.starved_ms < WORTH * run.step_ms:
        return
    asked_at = _asked_at(run)
    gain = _gain_by_keeping(run, use, work_ms, _ending_ms(run, asked_at))
    if gain is None:
        return
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
        predicted_gain=gain,
    )


def _gain_by_keeping(run: Evidence, use: LoaderUse, work_ms: float, ending_ms: float) -> Gain | None:
    """With workers they work ahead again; without, only the making of the iterator goes."""
    if use.workers:
        words = message("in106.gain_workers", work_ms=work_ms, workers=use.workers, ending_ms=ending_ms)
        # The CPUs' work of this run is mostly starting workers and batches thrown away: no bound.
        return gain_at(run, Loading(work_ms / use.workers, words, starts_ms=-ending_ms, caution=1.3, least_ms=0.0))
    return by_removing(run, run.phase("data").ms - work_ms, message("in106.gain"))


def _ending_ms(run: Evidence, asked_at: Location | None) -> float:
    """Workers are ended when their iterator is dropped: on the line that asked for the batch, after it has come."""
    seen = run.all_lines or run.report.lines
    return sum(line.ms for line in seen if line.location == asked_at and line.phase in ("forward", "other"))


def _is_one_batch(use: LoaderUse) -> bool:
    length = use.settings.get("dataset_len")
    return isinstance(length, int) and use.batch_size is not None and length <= use.batch_size


def _asked_at(run: Evidence) -> Location | None:
    """The line that most of the waiting is seen under."""
    asked = [line for line in run.all_lines or run.report.lines if line.phase == "data"]
    return max(asked, key=lambda line: line.ms).location if asked else None


_SHORT = Waiting(0.05, 900.0, rest_ms=1.0, median_ms=1.0, empty_share=0.0, ready_ms=1.0)
_STARVED = on_gpu(starved_share=0.3, drained_share=0.3, device_ms={"starved": 45.0, "step": 150.0})
_MS = {"data": 46.0, "forward": 35.0, "backward": 60.0, "optimizer": 9.0}
_SCAN = LineCost(Location("data.py", 7), "__init__", "other", 0.2, 30.0)
_EACH = Waiting(1.0, 150.0, rest_ms=0.0, median_ms=0.0)
_EACH_MS = {"data": 150.0, "forward": 20.0, "backward": 40.0, "optimizer": 5.0}
_EACH_STARVED = on_gpu(starved_share=0.69, drained_share=0.8, device_ms={"starved": 149.0, "step": 215.0})
CASES = (
    Case(
        "finds it when every epoch makes its loader",
        run(
            gpu=_STARVED,
            loaders=(loader(persistent_workers=False, epochs=20, made=20, iterator_s=0.3),),
            ms=_MS,
            waiting=_SHORT,
        ),
        found=True,
    ),
    Case(
        "finds it when each new dataset lists its files again",
        run(
            loaders=(loader(num_workers=0, made=10, epochs=10, cost=None),),
            ms={"data": 1.0, "forward": 50.0, "backward": 70.0, "other": 31.0},
            all_lines=(_SCAN,),
        ),
        found=True,
    ),
    Case(
        "finds it when workers start for every step",
        run(
            gpu=_EACH_STARVED,
            loaders=(loader(epochs=300),),
            ms=_EACH_MS,
            waiting=_EACH,
            all_lines=(LineCost(HERE, "train", "data", 0.69, 150.0),),
        ),
        found=True,
    ),
    Case(
        "finds it without workers when shuffling for every step takes the time",
        run(
            loaders=(loader(num_workers=0, epochs=300, cost=worker_cost(workers=0, fetch_ms_per_sample=0.2)),),
            ms=_EACH_MS,
            waiting=_EACH,
            cpus=1.0,
        ),
        found=True,
    ),
    Case(
        "quiet when one loader is used for all epochs",
        run(gpu=_STARVED, loaders=(loader(epochs=20),), ms=_MS, waiting=_SHORT),
        found=False,
    ),
    Case(
        "quiet when making it costs nothing",
        run(loaders=(loader(num_workers=0, made=10, epochs=10, cost=None, made_at=HERE),)),
        found=False,
    ),
    Case(
        "quiet when the whole data is one batch",
        run(gpu=_EACH_STARVED, loaders=(loader(epochs=300, dataset_len=32),), ms=_EACH_MS, waiting=_EACH),
        found=False,
    ),
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
                place=made.function.module.place(made.call),
                cause=message("in106.source_cause", line=place.line),
                loader_setting="persistent_workers",
                change=message("in106.change_persistent"),
            )
    for region, _, call in code.calls_each_step("next"):
        given = call.args[0] if call.args else None
        if isinstance(given, ast.Call) and called_name(given) == "iter" and given.args and _is_loader(given.args[0]):
            yield FoundInSource(
                severity="high",
                place=region.module.place(call),
                cause=message("in106.source_next", step=step_of(region)),
                change=message("in106.keep_iterator"),
                related=call_path(region),
            )


def _is_loader(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return "loader" in name.lower()


_REBUILT = """
for epoch in range(10):
    loader = DataLoader(dataset, batch_size=32, num_workers=8)  # found
    for batch in loader:
        model(batch).backward()
        optimizer.step()
"""
_FOLDS = """
for fold, (train_ids, _) in enumerate(splits):
    loader = DataLoader(Subset(dataset, train_ids), batch_size=32, num_workers=8)
    for batch in loader:
        model(batch).backward()
        optimizer.step()
"""
_NEXT = """
for step in range(1000):
    batch = next(iter(loader))  # found
    model(batch).backward()
    optimizer.step()
"""
SOURCE_CASES = (
    SourceCase("finds it when every epoch makes its loader", _REBUILT),
    SourceCase("finds it when each step begins a new epoch", _NEXT),
    SourceCase("quiet when each fold has its own data", _FOLDS),
    SourceCase(
        "quiet when it is made once",
        "loader = DataLoader(dataset)\n"
        + _REBUILT.replace("    loader = DataLoader(dataset, batch_size=32, num_workers=8)  # found\n", ""),
    ),
    SourceCase("quiet when the iterator is kept", _NEXT.replace("next(iter(loader))  # found", "next(batches)")),
)
