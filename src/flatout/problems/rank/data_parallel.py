"""One process drives several GPUs with DataParallel.

What it is: `torch.nn.DataParallel` splits each batch over the GPUs of one process, copies the model to each of them
in every forward pass, and gathers outputs and gradients on the first.

Why the GPU idles: one Python interpreter launches the work of all GPUs in turn, the copies come on top, and the first
GPU does the rest alone while the others wait.

How it shows in a run: one training process that holds memory on several GPUs, and `DataParallel(` in its source.

How it shows in source: `nn.DataParallel(model)` in a file that takes part in a training and in no function that
evaluates. Where the same file also offers DistributedDataParallel the finding is of low severity.

The fix: one process for each GPU: `torchrun --nproc-per-node N train.py`, with `DistributedDataParallel` and a
`DistributedSampler`.

What to expect: each GPU as busy as a single one would be. The range runs from a few per cent to all of the time in
which they idle now.

When it is fine: a quick experiment; a model so large that the copies do not matter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flatout.model.edits import Edits, LessStep
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.source.code import Code
from flatout.source.flow.guards import is_evaluation
from flatout.source.syntax.module import Class, Function
from flatout.source.syntax.nodes import argument, called_name, last_name, parameters

CODE = "RA904"
# Even well fed GPUs are not busy all the time.
_REACHED = 0.95


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    busy = [state.util_percent / 100 for state in run.gpus if state.util_percent is not None]
    if run.data_parallel_at is None or run.report.run.ranks != 1 or len(run.gpus) < 2 or len(busy) < len(run.gpus):
        return
    share = sum(busy) / len(busy)
    # What idles now is idle for want of batches as well: only the rest of it is DataParallel's doing.
    rest_ms = run.step_ms - run.starved_ms
    best_ms = run.starved_ms + rest_ms * min(1.0, share / _REACHED)
    yield FoundInRun(
        location=run.data_parallel_at,
        evidence={
            "gpus": len(run.gpus),
            "util_percent_mean": round(100 * share, 1),
            "util_percent_least": round(100 * min(busy), 1),
        },
        cause=message("ra904.cause", gpus=len(run.gpus), share=share),
        change=message("ra904.change", gpus=len(run.gpus)),
        edits=Edits.between((LessStep(part * (run.step_ms - best_ms)),) for part in (0.25, 0.5, 1.0)),
    )


# Wrapped so that they run on all GPUs as well, but never trained.
_NOT_TRAINED = re.compile(r"teacher|inception|vgg|lpips|perceptual|frozen|ema|feature_extractor", re.I)
_DERIVED = re.compile(r"\bclass \w+\([\w., ]*\bDataParallel\b")
_EACH_ITS_OWN = ("DistributedDataParallel", "DDP(", "FSDP(", "FullyShardedDataParallel", "accelerate")


def in_source(code: Code) -> Iterator[FoundInSource]:
    modules = code.project.mentioning("DataParallel")
    # Some derive a class of their own from it, to reach the model's methods.
    own = {cls.name for m in modules if _DERIVED.search(m.text) for cls in m.classes.values() if _is_derived(cls)}
    for module in code.project.modules if own else modules:
        may_use = not own or any(f"{name}(" in module.text for name in ("DataParallel", *own))
        if not may_use or not code.training.takes_part(module):
            continue
        offers_better = any(word in module.text for word in _EACH_ITS_OWN)
        calls = [found for name in ("DataParallel", *sorted(own)) for found in module.calls.get(name, [])]
        for call, function in calls:
            wrapped = argument(call, "module", 0)
            if wrapped is None or _is_aside(call, wrapped, function, code):
                continue
            yield FoundInSource(
                severity="low" if offers_better else "medium",
                place=module.place(call),
                cause=message("ra904.source_cause"),
                change=message("ra904.change", gpus="N"),
            )


def _is_derived(cls: Class) -> bool:
    return any(base.split(".")[-1] == "DataParallel" for base in cls.bases)


def _is_aside(call: ast.Call, wrapped: ast.expr, function: Function, code: Code) -> bool:
    """One of the project's own, of a single GPU, or around what is only evaluated."""
    meant = code.project.lookup(call.func.id, function) if isinstance(call.func, ast.Name) else None
    if isinstance(meant, Class) and not _is_derived(meant):
        return True
    devices = argument(call, "device_ids", 1)
    if isinstance(devices, ast.List) and len(devices.elts) == 1 and not isinstance(devices.elts[0], ast.Starred):
        return True
    name = last_name(wrapped)
    # `DataParallel(net).eval()`: in one breath.
    switched = any(
        called_name(other) == "eval" and any(part is call for part in ast.walk(other)) for other in function.calls
    )
    return switched or bool(_NOT_TRAINED.search(name)) or is_evaluation(name) or _evaluates(function)


def _evaluates(function: Function) -> bool:
    """By its name, or because all that it has is for that: `eval_loader`, and nothing that trains."""
    if is_evaluation(function.name):
        return True
    plain = function.definition
    names = [*function.bindings, *(parameters(plain) if plain is not None else ())]
    return plain is not None and any(map(is_evaluation, names)) and not any("train" in name for name in names)
