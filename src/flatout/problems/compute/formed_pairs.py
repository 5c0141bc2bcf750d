"""Values of all pairs are formed one by one, only to be summed.

What it is: distances or products of every row with every other one, by broadcasting: `(a[:, None] - b).pow(2).sum(2)`,
`(a[:, None] * b).sum(2)`. Of a thousand rows, a thousand columns and 64 values each, 64 million values are written.

Why the GPU idles: it does not; it writes these values to memory and reads them again, a few times in forward and more
in backward. A matrix product adds them up where they are made.

How it shows in a run: in a window over a few steps, the autograd graph sums over the values of pairs, and what is
summed is a row less a column, by a few of its values, or a row times a column, by the shapes of both. Both ways are
timed with these sizes on this machine when the run has ended. Only what is computed on the host is looked at.

The fix: `a @ b.T` is the sum of products. Squared distances are `a.pow(2).sum(1)[:, None] + b.pow(2).sum(1) - 2 * a @
b.T`, kept from falling below zero by `.clamp(min=0)`; `torch.cdist(a, b)` is their root.

What to expect: the difference of the two times. Losses stay the same but for rounding, which matters for distances that
are tiny beside the values themselves.

When it is fine: something else needs the values of the pairs too; then nothing is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from flatout.model.edits import Edits
from flatout.problems.compute.device import spare_passes
from flatout.problems.found import KEEPS_FROM_HEALTH, FoundInRun
from flatout.problems.hot_lines import place_name
from flatout.records.evidence import Evidence, SummedPairs
from flatout.records.message import message
from flatout.records.report import Location

CODE = "CO523"
# Of what was timed, which is with other values and nothing else at work.
_PARTS = (0.6, 0.95, 1.0)
# Of autograd, at most, that only form and sum: a difference, its square, the sum and root, and views.
_NODES = 7


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    # The same lines may form more pairs in one step than in another.
    groups: dict[tuple[Location, ...], list[SummedPairs]] = defaultdict(list)
    for pairs in run.summed_pairs:
        groups[pairs.locations].append(pairs)
    saved = [(group[0], _saved(run, group)) for group in groups.values()]
    forward_ms, backward_ms = (sum(times[place] for _, times in saved) for place in (0, 1))
    if forward_ms + backward_ms < KEEPS_FROM_HEALTH * run.step_ms:
        return
    worst = max(saved, key=lambda each: sum(each[1]))[0]
    yield FoundInRun(
        location=worst.locations[0],
        evidence={
            "rows": worst.rows,
            "columns": worst.columns,
            "values": worst.values,
            "saved_ms_per_step": round(forward_ms + backward_ms, 3),
        },
        cause=message(
            "co523.cause",
            line=place_name(worst.locations[0]),
            rows=worst.rows,
            columns=worst.columns,
            values=worst.values,
            ms=forward_ms + backward_ms,
            step_ms=run.step_ms,
        ),
        change=message("co523.change_distance" if worst.is_difference else "co523.change"),
        edits=Edits.between(spare_passes(run, part * forward_ms, part * backward_ms) for part in _PARTS),
    )


def _saved(run: Evidence, group: Sequence[SummedPairs]) -> tuple[float, float]:
    """Milliseconds of forward and of backward, no more than the lines take. What was not timed is not promised."""
    formed_ms = multiplied_ms = 0.0
    for pairs in group:
        if pairs.formed_ms is not None and pairs.multiplied_ms is not None:
            formed_ms += pairs.uses * pairs.formed_ms
            multiplied_ms += pairs.uses * pairs.multiplied_ms
    if formed_ms <= multiplied_ms:
        return 0.0, 0.0
    costs = [cost for cost in run.op_costs if cost.location in group[0].locations]
    forward_ms, backward_ms = sum(cost.forward_ms for cost in costs), sum(cost.backward_ms or 0.0 for cost in costs)
    lines_ms = forward_ms + backward_ms
    if sum(cost.backward_ops for cost in costs) <= _NODES * sum(pairs.uses for pairs in group):
        # They do nothing else, and take longer for it than a process that ends: new memory comes quicker there.
        formed_ms = max(formed_ms, lines_ms)
    spared_ms = min(formed_ms - multiplied_ms, lines_ms)
    part = spared_ms / lines_ms if lines_ms else 0.0
    return part * forward_ms, part * backward_ms
