"""The sampler takes long to draw indices, and it runs in the training process.

What it is: the sampler runs in the training process, whatever the number of workers. One that computes for every index
(drawing from all weights again, sorting, reading a file) delays each batch.

Why the GPU idles: after taking a batch, the loader draws the indices of another one before it returns the batch.

How it shows in a run: time in `data` although batches are ready, in a line of your sampler.

How it shows in source: a sampler's `__iter__` that draws in a loop, one index or one batch at a time, from all weights
or without replacement: `np.random.choice(n, p=weights)`, `torch.multinomial(weights, 1)`, `random.choices(...,
weights=...)`, `randperm(n)`. Each of these goes through all samples.

The fix: draw all indices of an epoch at once at the start of `__iter__` (`rng.choice(n, size, p=weights)`,
`torch.multinomial`, `torch.randperm`), then only yield them.

What to expect: taking a batch costs next to nothing again.

When it is fine: the draw takes well under a millisecond a batch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flatout.model.edits import Edits, LessTaking
from flatout.model.measured import batch_ms, usual_handover_ms
from flatout.problems.found import WORTH, FoundInRun, FoundInSource
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.message import message
from flatout.records.report import LineCost
from flatout.source.code import Code
from flatout.source.loops import enclosing_loops, names_changed_in
from flatout.source.syntax.module import Function
from flatout.source.syntax.nodes import (
    LOOPS,
    argument,
    called_name,
    dotted_name,
    names_in,
    short_text,
    walk_body,
    walk_scope,
)
from flatout.source.training.regions import Loop

CODE = "IN111"
# This part of the time in `data` must be seen under lines of the sampler.
_SEEN = 0.2
# With batches ready for fewer steps than this the waiting is for the workers.
_READY = 0.5
_TORCH_OWN = (
    "RandomSampler",
    "SequentialSampler",
    "DistributedSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
    "_InfiniteConstantSampler",
    "NoneType",
)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use = run.training_loader
    if use is None or not run.step_ms or run.starved_ms < WORTH * run.step_ms:
        return
    held_ms = _held_ms(run, use)
    line = _line(run, use)
    if line is None or held_ms < WORTH * run.step_ms:
        return
    yield FoundInRun(
        location=line.location,
        evidence={
            "sampler": str(use.settings.get("sampler")),
            "data_ms_per_step": round(run.phase("data").ms, 2),
            "drawing_ms_per_step": round(held_ms, 2),
            "num_workers": use.workers,
        },
        cause=message("in111.cause", drawing_ms=held_ms, step_ms=run.step_ms, function=line.function),
        change=message("in111.change"),
        edits=Edits((LessTaking(held_ms),)),
    )


def _held_ms(run: Evidence, use: LoaderUse) -> float:
    """Milliseconds a step in `data` that are neither waiting for a worker nor making samples."""
    if not use.workers:
        work_ms = batch_ms(run, use)
        return 0.0 if work_ms is None else run.phase("data").ms - work_ms
    waiting = run.waiting
    if waiting is None or waiting.ready_ms is None or waiting.empty_share is None or waiting.empty_share > 1 - _READY:
        return 0.0
    return (1 - waiting.first_share) * (waiting.ready_ms - usual_handover_ms(run))


def _line(run: Evidence, use: LoaderUse) -> LineCost | None:
    """The dearest line of the sampler: seen while a batch is fetched, in a function that is seen in no other phase.

    The line that asks for the batch is seen then too, so the sampler's must be another one, or be in an `__iter__`.
    """
    lines = run.all_lines or run.report.lines
    elsewhere = {(line.location.file, line.function) for line in lines if line.phase != "data"}
    fetching = [line for line in lines if line.phase == "data"]
    places = {(line.location.file, line.function) for line in fetching}
    own = [line for line in fetching if (line.location.file, line.function) not in elsewhere]
    is_custom = use.settings.get("sampler") not in _TORCH_OWN or use.settings.get("batch_size") is None
    named = [line for line in own if line.function == "__iter__"]
    drawing = named if named and is_custom else own if use.workers and len(places) > 1 else []
    seen_ms = sum(line.ms for line in drawing)
    if not is_custom or seen_ms < _SEEN * run.phase("data").ms:
        return None
    return max(drawing, key=lambda line: line.ms)


_DRAWS = re.compile(r"\b(choices?|multinomial|randperm)\(")


def in_source(code: Code) -> Iterator[FoundInSource]:
    for module in code.project.mentioning("__iter__"):
        if "Sampler)" not in module.text or not _DRAWS.search(module.text) or not code.training.takes_part(module):
            continue
        for cls in module.classes.values():
            method = cls.methods.get("__iter__")
            if method is None or not code.project.is_a(cls, "Sampler"):
                continue
            for call in method.calls:
                if _goes_through_all(call) and _is_repeated(call, method):
                    yield FoundInSource(
                        place=module.place(call),
                        cause=message("in111.source_cause", code=short_text(call, 50)),
                        change=message("in111.source_change"),
                    )
                    break


def _goes_through_all(call: ast.Call) -> bool:
    """A draw that weighs, sums up or shuffles everything there is, whatever it then takes."""
    name, root = called_name(call), dotted_name(call.func).split(".")[0]
    if name == "choice":
        weighs = argument(call, "p", 3) is not None
        keeps = argument(call, "replace", 2)
        return weighs or (root in ("np", "numpy") and isinstance(keeps, ast.Constant) and keeps.value is False)
    if name == "choices":
        return argument(call, "weights", 1) is not None or argument(call, "cum_weights") is not None
    return name in ("multinomial", "randperm") and root in ("torch", "self") and bool(call.args)


def _is_repeated(call: ast.Call, method: Function) -> bool:
    """In a loop whose turns it takes nothing from: drawing for each class, or for each epoch, is something else."""
    around = enclosing_loops(call, method)
    if not around or names_in(call) & names_changed_in(around):
        return False
    return not _hands_out_many(around[-1])


def _hands_out_many(loop: Loop) -> bool:
    """`while True: yield from torch.randperm(n)`: one draw serves a whole epoch."""
    for node in walk_body(loop.body):
        if isinstance(node, ast.YieldFrom) or (
            isinstance(node, LOOPS) and any(isinstance(n, ast.Yield) for n in walk_scope(node))
        ):
            return True
    return False
