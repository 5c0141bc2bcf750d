"""The training process loads its batches itself.

What it is: the DataLoader has `num_workers=0`, so reading, decoding and collating happen between two training steps, in
the process that trains.

Why the GPU idles: while the main process makes a batch it launches nothing, and the device runs dry.

How it shows in a run: time in `data` with no worker process, at about the cost of a sample times the batch.

How it shows in source: a DataLoader of a training without `num_workers`, or to which 0 comes: from the call itself, an
argparse default, a dataclass field, a config file. The finding is reported where the 0 is written.

The fix: `DataLoader(..., num_workers=N, persistent_workers=True)`. N is what keeps the training fed: the time of a
sample times the samples a step, over the time the rest of the step takes, and no more than the CPUs less one.

What to expect: the step shrinks to what is left of it, or to the loader's time shared by its workers, whichever is
longer.

When it is fine: the batches are there at once (a tensor in memory), or the wait is below 5% of the step.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, Workers
from flatout.problems.found import WORTH, FoundInRun, FoundInSource, setting_words, where_written
from flatout.problems.input.loading import dearest_line, has_missing_workers, is_per_batch, workers_for
from flatout.records.evidence import Evidence
from flatout.records.message import message, verbatim
from flatout.records.source import Edit, Fix
from flatout.source.code import Code
from flatout.source.flow.values import replace_value
from flatout.source.syntax.edits import add_keyword
from flatout.source.syntax.nodes import has_star_arguments
from flatout.source.training.loaders import (
    Loader,
    Setting,
    accepts_setting,
    has_device_samples,
    is_in_memory,
    loader_setting,
)

CODE = "IN101"
REMEDY = "loader.workers"
HIDES = True


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use = run.training_loader
    if use is None or use.workers or not run.step_ms or run.starved_ms < WORTH * run.step_ms:
        return
    if is_per_batch(run):
        return  # workers would be started for every batch
    if has_missing_workers(run):
        return  # said as what it is: a setting that went astray
    workers = workers_for(run, use)
    if not workers:
        return
    yield FoundInRun(
        location=use.made_at,
        evidence={
            "num_workers": 0,
            "data_ms_per_step": round(run.phase("data").ms, 2),
            "sample_ms": round(use.sample_ms or 0.0, 3),
            "cpus": run.cpus,
            "workers": workers,
            **dearest_line(run),
        },
        cause=message("in101.cause", data_ms=run.phase("data").ms, step_ms=run.step_ms),
        change=verbatim(f"num_workers={workers}, persistent_workers=True"),
        edits=Edits((Workers(workers),)),
    )


def in_source(code: Code) -> Iterator[FoundInSource]:
    for made in code.loaders:
        # A worker cannot put anything on a device.
        if not made.trains or is_in_memory(made, code.project) or has_device_samples(made, code.project):
            continue
        workers = loader_setting(made, "num_workers", code.values)
        if not workers.is_off():
            continue
        value = workers.value
        written, related = where_written(value, made.place, "related.reaches_loader")
        yield FoundInSource(
            place=value.place if value is not None and value.is_direct else written,
            cause=message("in101.source_cause", setting=setting_words("num_workers", value)),
            change=message("in101.source_change"),
            loader_setting="num_workers",
            related=related,
            fix=_fix(made, workers, code),
        )


def _fix(made: Loader, workers: Setting, code: Code) -> Fix | None:
    """Not a safe one: random numbers that samples draw come from the workers' own generators then."""
    value, module, number = workers.value, made.function.module, code.project.workers
    if _repeats_itself(made, code):
        return None
    stays = loader_setting(made, "persistent_workers", code.values).state == "missing"
    if value is not None and not value.is_direct:
        # No persistent_workers: torch refuses them to whoever asks for no workers on the command line.
        found = replace_value(code.project, value, number, "worker")
        return None if found is None else Fix(verbatim(f"num_workers {number}"), (found,), is_safe=False)
    if has_star_arguments(made.call) or (value is None and not accepts_setting(made, "num_workers")):
        return None  # a keyword that arrives twice is an error, and so is one that is not known
    keywords = [] if value is not None else [f"num_workers={number}"]
    keywords += ["persistent_workers=True"] if stays and accepts_setting(made, "persistent_workers") else []
    edits = [] if value is None else [Edit(value.place, str(number))]
    more = add_keyword(module, made.call, ", ".join(keywords)) if keywords else None
    if keywords and more is None:
        return None
    words = f"num_workers={number}" + (", persistent_workers=True" if stays else "")
    return Fix(verbatim(words), (*edits, more) if more is not None else tuple(edits), is_safe=False)


def _repeats_itself(made: Loader, code: Code) -> bool:
    """A stream that is not shared out gives each of its samples once for every worker."""
    cls = code.project.class_of(made.dataset, made.function) if made.dataset is not None else None
    if cls is None or "get_worker_info" in cls.module.text:
        return False
    by_index = code.project.methods(cls, "__getitem__")
    return code.project.is_a(cls, "IterableDataset") or not by_index
