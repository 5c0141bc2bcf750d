"""Whether some remedies gain on top of what is kept, by the trials there are of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flatout.app.fixing.bench import Bench
from flatout.app.fixing.judging import counted_by
from flatout.prove.decision import BAR, Candidate, judged
from flatout.prove.rates import evened
from flatout.records.plan import Planned
from flatout.records.proof import Decision

MOST_REPEATS = 4


def decided(
    bench: Bench, group: Sequence[Planned], before: Mapping[str, Any], after: Mapping[str, Any], tried: int
) -> Decision:
    """`tried` remedies were planned so far: each has a chance to look good by luck, every time it is judged."""
    by, steps, arm = counted_by(one.id for one in group), sees(bench, group), " + ".join(one.id for one in group)
    arms = [bench.timed(profile, steps) for profile in (before, after)]
    spread = bench.spread(before, steps, by, evenly=by == "total")
    if by == "total":
        (in_steps,) = judged(arms[0], [Candidate(arm, arms[1])], bench.spread(before, steps))
        if in_steps.judgement == "harmful":
            return in_steps
        # What processes differ by in all their steps has nothing to do with pauses.
        arms = evened(arms)
    candidate = Candidate(arm, arms[1], by)
    decision = judged(arms[0], [candidate], spread, MOST_REPEATS * max(1, tried))[0]
    # One that does what a finding foretold has not been picked from among many by its luck.
    foretold = [one.predicted.low for one in group if one.predicted is not None and one.predicted.low > BAR]
    if decision.gain is not None and foretold and decision.gain.mid >= max(foretold):
        return judged(arms[0], [candidate], spread, MOST_REPEATS)[0]
    return decision


def sees(bench: Bench, group: Sequence[Planned]) -> int:
    """Steps that hold enough of the pauses that they are about; 0 where they are about none."""
    assert bench.sizes is not None
    return bench.sizes.sees({one.id: one.value for one in group})
