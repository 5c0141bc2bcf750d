"""The loader starts new workers for every epoch.

What it is: without `persistent_workers=True` a DataLoader shuts its workers down at the end of each epoch and starts
new ones for the next: processes, imports, open files, caches, all again.

Why the GPU idles: between two epochs it waits until the new workers run and have produced a first batch.

How it shows in a run: the first step of each epoch waits many times longer than the others, beyond what loading one
batch takes.

How it shows in source: a DataLoader with workers and without `persistent_workers`, made once and iterated in a loop
over epochs, in a generator that restarts forever, or by Lightning.

The fix: `DataLoader(..., persistent_workers=True)`.

What to expect: an epoch begins as soon as one batch is ready. The shorter the epochs, the more it gains.

When it is fine: long epochs, where a start-up of a second does not matter; a dataset that must be reopened each epoch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.model.edits import Edits
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.problems.input.loading import start_cost, without_starts
from flatout.records.evidence import Evidence
from flatout.records.message import message, verbatim
from flatout.records.source import Fix, Related
from flatout.source.code import Code
from flatout.source.loops import find_epoch_loop, is_framework_loader, known_workers
from flatout.source.syntax.edits import add_keyword, replace_node
from flatout.source.syntax.nodes import argument
from flatout.source.training.loaders import Loader, accepts_setting, loader_argument, loader_setting

CODE = "IN105"
REMEDY = "loader.persistent"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    for use in run.loaders:
        if use.settings.get("persistent_workers") or use.made > 1:
            continue  # a loader that is made anew cannot keep its workers
        start = start_cost(run, use)
        if start is None:
            continue
        yield FoundInRun(
            location=use.made_at,
            evidence={
                "epochs": use.epochs,
                "num_workers": use.workers,
                "start_ms_each": round(start.each_ms, 1),
                "start_ms_per_step": round(start.per_step_ms, 3),
            },
            cause=message("in105.cause", workers=use.workers, epochs=use.epochs, each_ms=start.each_ms),
            change=verbatim("persistent_workers=True"),
            edits=Edits((without_starts(use, start),)),
        )


def in_source(code: Code) -> Iterator[FoundInSource]:
    for made in code.loaders:
        if not made.trains or not loader_setting(made, "persistent_workers", code.values).is_off():
            continue
        if not known_workers(made, code):
            continue
        around = find_epoch_loop(made, code)
        if around is None and not is_framework_loader(made):
            continue
        module = made.function.module
        yield FoundInSource(
            severity="low",
            place=module.place(made.call),
            cause=message("in105.source_cause"),
            loader_setting="persistent_workers",
            change=verbatim("persistent_workers=True"),
            related=()
            if around is None
            else (Related(around[1].module.at(around[0].lineno), message("related.repeats")),),
            fix=_fix(made),
        )


def _fix(made: Loader) -> Fix | None:
    """Not a safe one: a dataset that lives on keeps what each epoch changed in it, and its random state."""
    given = loader_argument(made, "num_workers")
    written = argument(made.call, "persistent_workers")
    is_open = any(keyword.arg is None for keyword in made.call.keywords)
    if given is None or is_open or not accepts_setting(made, "persistent_workers"):
        return None
    # Without workers torch refuses it: where their number is a setting, it has to follow.
    text = "True" if isinstance(given, ast.Constant) else f"{ast.unparse(given)} > 0"
    module = made.function.module
    if written is None:
        edit = add_keyword(module, made.call, f"persistent_workers={text}")
    else:
        edit = replace_node(module, written, text) if isinstance(written, ast.Constant) else None
    return None if edit is None else Fix(verbatim(f"persistent_workers={text}"), (edit,), is_safe=False)
