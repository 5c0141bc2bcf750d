"""The evaluation waits for its loader longer than the training does.

What it is: the evaluation's loader has no workers, or too few, or gives one sample at a time, so that an evaluation
takes several times what the model needs for it.

Why the GPU idles: while the main process makes a batch of validation data, the GPU has nothing to do; with one sample
at a time there are as many launches as for a large batch, for a fraction of the work.

How it shows in a run: `eval` time that is mostly the cost of its samples times their number, or a sample that takes
much longer to evaluate than the training's forward pass, with a small batch.

How it shows in source: an evaluation's DataLoader with `batch_size=1` beside a training loader whose batch is larger.

The fix: `DataLoader(validation, batch_size=B, num_workers=N, persistent_workers=True)`, B as in the training (or
larger: there are no gradients to keep).

What to expect: an evaluation takes the model's time for it, or the loading time divided by its workers, whichever is
longer.

When it is fine: samples of different size that cannot share a batch; an evaluation too short to matter.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, LessPause
from flatout.problems.cadence.pauses import BetterFeed, Evaluation, find_evaluation, improve_feed, pause_ms
from flatout.problems.found import WORTH, FoundInRun, FoundInSource
from flatout.records.evidence import Evidence
from flatout.records.message import Message, message, verbatim
from flatout.records.source import Related
from flatout.source.code import Code
from flatout.source.training.loaders import Loader, is_in_memory, loader_setting

CODE = "CA602"
REMEDY = "loader.workers"
_BETTER = 0.75


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    evaluation = find_evaluation(run)
    better = improve_feed(run, evaluation) if evaluation is not None else None
    if evaluation is None or better is None or better.each_ms > _BETTER * evaluation.each_ms:
        return
    ms = pause_ms(run, "eval")
    if ms < WORTH * run.step_ms:
        return
    after, cautious = better.each_ms / evaluation.each_ms, better.cautious_ms / evaluation.each_ms
    yield FoundInRun(
        location=evaluation.loader.made_at,
        evidence={
            "eval_s_each": round(evaluation.each_ms * 1e-3, 3),
            "loading_s_each": round(evaluation.loading_ms * 1e-3, 3),
            "samples_each": int(evaluation.samples),
            "num_workers": evaluation.loader.workers,
            "batch_size": evaluation.loader.batch_size or 0,
        },
        cause=_cause(run, evaluation, better),
        change=_change(evaluation, better),
        edits=Edits((LessPause("eval", ms * (1 - after)),), worst=(LessPause("eval", ms * (1 - cautious)),)),
    )


def _cause(run: Evidence, evaluation: Evaluation, better: BetterFeed) -> Message:
    took = {"each_s": evaluation.each_ms * 1e-3, "share": pause_ms(run, "eval") / run.step_ms}
    workers = evaluation.loader.workers
    if better.workers <= workers:
        return message("ca602.cause_batch", **took, batch_size=evaluation.loader.batch_size or 1)
    if not workers:
        return message("ca602.cause_main_process", **took, loading_s=evaluation.loading_ms * 1e-3)
    return message("ca602.cause_workers", **took, workers=workers, loading_s=evaluation.loading_ms / workers * 1e-3)


def _change(evaluation: Evaluation, better: BetterFeed) -> Message:
    changes = []
    if better.batch_size != (evaluation.loader.batch_size or 1):
        changes.append(f"batch_size={better.batch_size}")
    if better.workers != evaluation.loader.workers:
        changes.append(f"num_workers={better.workers}, persistent_workers=True")
    return verbatim(", ".join(changes))


def in_source(code: Code) -> Iterator[FoundInSource]:
    for made in code.loaders:
        if made.trains or _batch(made, code) != 1 or is_in_memory(made, code.project):
            continue
        if loader_setting(made, "batch_sampler", code.values).state != "missing":
            continue
        module = made.function.module
        larger = [
            loader
            for loader in code.loaders
            if loader.trains and loader.function.module is module and _batch(loader, code) > 1
        ]
        # Samples of different size cannot share a batch: only where the training's do it is clear.
        if (
            not larger
            or loader_setting(made, "collate_fn", code.values).state
            != loader_setting(larger[0], "collate_fn", code.values).state
        ):
            continue
        yield FoundInSource(
            severity="low",
            place=module.place(made.call),
            cause=message("ca602.source_cause"),
            change=message("ca602.source_change", batch_size=_batch(larger[0], code)),
            loader_setting="batch_size",
            related=(Related(module.place(larger[0].call), message("related.training_loader")),),
        )


def _batch(made: Loader, code: Code) -> int:
    """0 where it is not known."""
    given = loader_setting(made, "batch_size", code.values)
    if given.state == "missing":
        return 1
    return given.value.value if given.value is not None and isinstance(given.value.value, int) else 0
