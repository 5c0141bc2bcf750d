"""Parts of a tensor are picked one by one, and each fills all of it in backward.

What it is: a loop over time or over positions reads `x[:, t]` from a tensor that requires a gradient. The gradient of
each pick is a tensor as large as all of `x`, zero but for one part, and these are added up: for 400 positions, 400
times the memory of `x` is filled and 400 times it is read and added.

Why the GPU idles: it does not; it fills memory with zeros and adds them up.

How it shows in a run: in a window over a few steps, the graph has four or more nodes that pick from the same tensor,
which are timed in backward.

The fix: take it apart once, before the loop: `for part in x.unbind(1):`, or `x.split(...)`, `x.chunk(...)`. Backward
puts the gradients of all parts together at once. A loop that `torch.nn.RNN`, a convolution or a cumulative sum can
replace gains more.

What to expect: nearly all of the time that picking takes in backward. Losses and trained weights stay the same.

When it is fine: a few large parts are picked from a small tensor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from flatout.model.edits import Edits
from flatout.problems.compute.device import spare_passes
from flatout.problems.found import WORTH, FoundInRun
from flatout.problems.hot_lines import place_name
from flatout.records.evidence import Evidence, PickedParts
from flatout.records.message import message

CODE = "CO522"
# Of what the picks take in backward. What takes all parts together still writes each once.
_PARTS = (0.75, 1.0, 1.0)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    # Tensors that one function picks from in the same loop have one cause.
    groups: dict[tuple[str, str], list[PickedParts]] = defaultdict(list)
    for parts in run.picked_parts:
        groups[parts.location.file, parts.function].append(parts)
    for group in groups.values():
        backward_ms = sum(parts.backward_ms for parts in group)
        spared_ms = sum(parts.backward_ms * (1.0 - 1.0 / parts.count) for parts in group)
        if spared_ms < WORTH * run.step_ms:
            continue
        worst = max(group, key=lambda parts: parts.backward_ms)
        yield FoundInRun(
            location=worst.location,
            evidence={
                "picks_per_step": round(sum(parts.count * parts.tensors for parts in group), 2),
                "elements": int(worst.elements),
                "picked_share": round(worst.picked / max(1.0, worst.count * worst.elements), 5),
                "backward_ms_per_step": round(backward_ms, 3),
            },
            cause=message(
                "co522.cause",
                line=place_name(worst.location),
                picks=worst.count,
                ms=backward_ms,
                step_ms=run.step_ms,
            ),
            change=message("co522.change", line=place_name(worst.location)),
            edits=Edits.between(spare_passes(run, 0.0, part * spared_ms) for part in _PARTS),
        )
