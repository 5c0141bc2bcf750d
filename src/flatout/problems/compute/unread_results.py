"""Most of what a line computes has no effect on the loss.

What it is: results are computed for all positions, and the loss reads a few of them. Scores over the whole vocabulary
for every token while a seventh of the tokens is masked, logits of all nodes while some have a label, every expert for
every token while one is chosen.

Why the GPU idles: it does not; it computes results, and passes gradients of zero back through them.

How it shows in a run: in a window over a few steps, most rows of the gradient of a line's largest operations are zero.
Which rows these are does not depend on the results themselves: what keeps the largest of them is left out. On a GPU
only the window that records kernels reads gradients.

The fix: pick the positions first, and compute for these: `loss(decoder(h[masked]), words[masked])`, not
`loss(decoder(h), labels)` with `ignore_index`.

What to expect: of the line and its backward the part that is not read. The loss and the gradients stay the same but for
rounding. Dropout behind the place where positions are picked draws other numbers.

When it is fine: the other results are used without a gradient, for a metric in each step.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits
from flatout.problems.compute.device import line_device_ms, spare_passes
from flatout.problems.found import KEEPS_FROM_HEALTH, FoundInRun
from flatout.problems.hot_lines import place_name
from flatout.records.evidence import Evidence, HeavyLine
from flatout.records.message import message

CODE = "CO519"
# Padding is named as such: trimming it helps all of the model, not only what comes after the last mixing of positions.
COMES_FROM = ("CO507",)
# "Most": with less the change is hardly worth its trouble, and one layer among several alike may be meant.
_MOST = 0.5
# Of the part that is not read, what goes: picking rows costs as well, and what is not a product may stay.
_PARTS = (0.5, 0.9, 1.0)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    lines = [line for line in run.heavy_lines if line.unread_share >= _MOST]
    timed = [(line, *_times(run, line)) for line in lines]
    forward_ms = sum(line.unread_share * forward for line, forward, _ in timed)
    backward_ms = sum(line.unread_share * backward for line, _, backward in timed)
    device_ms = sum(line.unread_share * (line_device_ms(run, line.location) or 0.0) for line in lines)
    spared_ms = device_ms if run.on_gpu else forward_ms + backward_ms
    if spared_ms < KEEPS_FROM_HEALTH * run.step_ms:
        return
    worst = max(timed, key=lambda each: each[0].unread_share * (each[1] + each[2]))[0]
    # Fewer rows spare the device work, and the host no launch.
    times_ms = (0.0, 0.0) if run.on_gpu else (forward_ms, backward_ms)
    yield FoundInRun(
        location=worst.location,
        evidence={
            "unread_share": round(worst.unread_share, 3),
            "lines": len(lines),
            "unread_ms_per_step": round(spared_ms, 3),
        },
        cause=message(
            "co519.cause",
            share=worst.unread_share,
            line=place_name(worst.location),
            ms=spared_ms,
            step_ms=run.step_ms,
        ),
        change=message("co519.change", line=place_name(worst.location)),
        edits=Edits.between(
            spare_passes(run, part * times_ms[0], part * times_ms[1], part * device_ms if run.on_gpu else None)
            for part in _PARTS
        ),
    )


def _times(run: Evidence, line: HeavyLine) -> tuple[float, float]:
    """Milliseconds of a step, forward and backward."""
    costs = [cost for cost in run.op_costs if cost.location == line.location]
    return sum(cost.forward_ms for cost in costs), sum(cost.backward_ms or 0.0 for cost in costs)
