"""Gradients are filled with zeros instead of being dropped.

What it is: `zero_grad(set_to_none=False)`, or a loop that calls `p.grad.zero_()` for each parameter.

Why the GPU idles: zeros are written to every gradient, and the backward pass then reads them again to add to them. In
a loop each is a separate launch.

How it shows in source: such a call or loop in code that every step runs.

The fix: `optimizer.zero_grad()`: it drops the gradients, and the backward pass writes new ones.

What to expect: little; one pass less over the gradients' memory, and with many parameters fewer launches.

When it is fine: something reads `p.grad` of parameters that took no part in the backward pass and expects zeros, or a
captured CUDA graph needs the gradients where they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.problems.found import FoundInSource, step_of
from flatout.problems.host.optimizers import find_updates
from flatout.records.message import message
from flatout.records.source import Fix
from flatout.source.code import Code, call_path
from flatout.source.syntax.edits import replace_node
from flatout.source.syntax.nodes import argument
from flatout.source.training.jobs import loop_header
from flatout.source.training.regions import Region

CODE = "HO410"


def in_source(code: Code) -> Iterator[FoundInSource]:
    for region, _, call in code.calls_each_step("zero_grad"):
        given = argument(call, "set_to_none", 0)
        if isinstance(given, ast.Constant) and given.value is False and not _captures(region):
            yield FoundInSource(
                severity="low",
                place=region.module.place(call),
                cause=message("ho410.source_cause", step=step_of(region)),
                change=message("ho410.source_change"),
                related=call_path(region),
                # Not a safe one: a gradient is then None where it was zeros.
                fix=Fix(message("ho410.fix"), (replace_node(region.module, given, "True"),), is_safe=False),
            )
    for update in find_updates(code):
        if update.region is not None and update.done == "zeroed" and not _captures(update.region):
            yield FoundInSource(
                severity="low",
                place=loop_header(update.loop, update.region.module),
                cause=message("ho410.source_cause_loop", step=step_of(update.region)),
                change=message("ho410.source_change_loop"),
                related=call_path(update.region),
            )


def _captures(region: Region) -> bool:
    """A captured graph writes its gradients to where they were."""
    return "CUDAGraph" in region.module.text or "cuda.graph" in region.module.text
