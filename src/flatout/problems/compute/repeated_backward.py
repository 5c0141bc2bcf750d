"""Several backward passes go over the same graph.

What it is: each loss has a backward of its own, `loss.backward(retain_graph=True)`, and the graphs share a part,
usually the whole trunk of the model. Each pass computes the gradients of that part again.

Why the GPU idles: it does not; it goes through the shared part once for each loss, and keeps its activations until the
last one is through.

How it shows in a run: in a window over a few steps, backward passes run autograd nodes that an earlier pass of the step
has run. Nobody touches the gradients in between: they only add up.

The fix: add the losses up first: `sum(losses).backward()`, without `retain_graph`. The gradient of a sum is the sum of
the gradients.

What to expect: all of the time of the further passes over the shared part, and memory that is free sooner. Gradients
are the same but for rounding.

When it is fine: each loss' own gradients are needed, to weigh or to project them. Then ask `torch.autograd.grad` for
those of the shared features only.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits
from flatout.problems.compute.device import spare_passes
from flatout.problems.found import WORTH, FoundInRun
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "CO515"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    for again in run.backward_again:
        if again.backward_ms < WORTH * run.step_ms:
            continue
        yield FoundInRun(
            location=again.location,
            evidence={
                "passes_per_step": round(again.passes, 2),
                "nodes_run_again": round(again.nodes, 1),
                "backward_ms_per_step": round(again.backward_ms, 3),
            },
            cause=message("co515.cause", passes=again.passes, ms=again.backward_ms, step_ms=run.step_ms),
            change=message("co515.change"),
            edits=Edits(spare_passes(run, 0.0, again.backward_ms)),
        )
