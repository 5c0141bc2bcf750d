"""The optimizer could update all parameters in one kernel.

What it is: torch's Adam, AdamW or SGD in a training on a GPU, without `fused=True`.

Why the GPU idles: torch's default updates all parameters in a dozen rounds of kernels. Each reads and writes all
parameters or all state, and each is launched by the host.

How it shows in source: such an optimizer without `fused`, `foreach` or `capturable`, in a training that uses a GPU and
has no fused optimizer.

The fix: `torch.optim.AdamW(model.parameters(), lr=lr, fused=True)`. From outside `optimizer.fused` does that.

What to expect: the update takes about half as long. That is much of a step with many small parameters and a small
batch, and little of a step that computes long.

When it is fine: the update is a small part of the step. Fused updates round in another order, take no sparse
gradients, and may not work with a trainer that clips gradients itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.found import FoundInSource
from flatout.problems.host.optimizers import Optimizer, find_optimizers
from flatout.records.message import message, verbatim
from flatout.records.source import Fix
from flatout.source.code import Code
from flatout.source.syntax.edits import add_keyword
from flatout.source.syntax.module import Module
from flatout.source.syntax.nodes import has_star_arguments
from flatout.source.training.jobs import text_pattern

CODE = "HO409"
_WORTH_FUSING = ("AdamW", "Adam", "SGD")
_CHOSEN = ("fused", "foreach", "capturable", "differentiable")
# Fused already, or wrapped in something that has its own kernels or its own ideas.
_OTHERWISE = text_pattern(
    r"\b[fF]used|\bdeepspeed\b|\bapex\b|\bZeroRedundancy|\bsparse=True|\bSparseAdam\b|\bxla_model\b",
    "used", "deepspeed", "apex", "ZeroRedundancy", "sparse=True", "SparseAdam", "xla_model",
)  # fmt: skip


def in_source(code: Code) -> Iterator[FoundInSource]:
    said: set[int] = set()
    for job in code.jobs:
        if job.kind == "transformers" or not job.is_on_gpu or job.says(_OTHERWISE):
            continue
        # The training's own: of its file, else the only one of what it imports.
        others = _find_unfused([module for module in job.modules if module is not job.module])
        found = _find_unfused([job.module])[:1] or (others if len(others) == 1 else [])
        optimizer = found[0] if found else None
        if optimizer is None or id(optimizer.function.module) in said:
            continue
        module = optimizer.function.module
        said.add(id(module))
        edit = add_keyword(module, optimizer.call, "fused=True")
        yield FoundInSource(
            severity="hint",
            place=module.place(optimizer.call),
            cause=message("ho409.source_cause", optimizer=optimizer.name),
            change=verbatim("fused=True"),
            fix=None if edit is None else Fix(verbatim("fused=True"), (edit,), is_safe=False),
        )


def _find_unfused(modules: list[Module]) -> list[Optimizer]:
    return [
        optimizer
        for module in modules
        for optimizer in find_optimizers(module)
        if optimizer.name in _WORTH_FUSING
        and not has_star_arguments(optimizer.call)
        and optimizer.given(*_CHOSEN) is None
    ]
