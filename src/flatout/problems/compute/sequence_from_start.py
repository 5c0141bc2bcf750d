"""A sequence is computed from its start for each element.

What it is: a module is called in a loop, and its input grows: `model(tokens[:, :t + 1])[:, -1]` for each `t`, an RNN
over everything so far for each of its steps, or `seq = torch.cat([seq, new], 1)` and then `model(seq)`.

Why the GPU idles: it does not; it computes the first element again in every call, the second in all but one. Work that
could grow with the length grows with its square, in backward too.

How it shows in a run: in a window over a few steps, a line calls the same module with an input that is longer each time
by the same amount, in one dimension. Values are not looked at. Where all inputs are the beginning of one tensor that
nobody writes to meanwhile, all elements were known before.

The fix: an RNN hands on its hidden state, and is given the new element alone: `out, state = rnn(new, state)`. Attention
with a causal mask keeps keys and values of what it has seen. If all elements are known before the loop, as in teacher
forcing, one call with a causal mask, or one of the RNN, gives the results of all positions.

What to expect: of `n` elements computed `n / 2` times each, once each is left. With a state or a cache there are as
many calls as before, each with what it takes for one element; one call for all spares these as well. Results are the
same but for rounding, and dropout that is drawn once.

When it is fine: the model looks ahead (no causal mask, a bidirectional RNN), so each result needs all of it again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from flatout.model.edits import Edits
from flatout.problems.compute.device import is_gpu_bound, spare_passes
from flatout.problems.found import WORTH, FoundInRun
from flatout.problems.hot_lines import place_name
from flatout.records.evidence import Evidence, GrowingCalls
from flatout.records.message import message

CODE = "CO520"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    # Modules that one function calls in turn are parts of the same sequence.
    groups: dict[tuple[str, str], list[GrowingCalls]] = defaultdict(list)
    for calls in run.growing_calls:
        groups[calls.location.file, calls.function].append(calls)
    for group in groups.values():
        worst, is_known = group[0], all(calls.is_known for calls in group)
        spared = [_spared_ms(run, group, case) for case in range(3)]
        if sum(spared[1]) < WORTH * run.step_ms:
            continue
        forward_ms, backward_ms = sum(calls.forward_ms for calls in group), sum(calls.backward_ms for calls in group)
        yield FoundInRun(
            location=worst.location,
            evidence={
                "module": worst.module,
                "calls_per_step": round(worst.calls, 2),
                "sequences_per_step": round(worst.sequences, 2),
                "first_length": int(worst.first_length),
                "last_length": int(worst.last_length),
                "dimension": worst.dimension,
                "times_computed": round(worst.computed / max(1.0, worst.needed), 2),
                "forward_ms_per_step": round(forward_ms, 3),
                "backward_ms_per_step": round(backward_ms, 3),
                "known_before": int(is_known),
            },
            cause=message(
                "co520.cause",
                module=worst.module,
                line=place_name(worst.location),
                calls=worst.calls,
                first=worst.first_length,
                last=worst.last_length,
                times=worst.computed / max(1.0, worst.needed),
                ms=forward_ms + backward_ms,
                step_ms=run.step_ms,
            ),
            change=message("co520.change_known" if is_known else "co520.change", module=worst.module),
            edits=Edits.between(spare_passes(run, *ms) for ms in spared),
        )


def _spared_ms(run: Evidence, group: Sequence[GrowingCalls], case: int) -> tuple[float, float]:
    """Of forward and of backward: at worst (0), likely (1) or at best (2)."""
    forward_ms = sum(calls.forward_ms * (1.0 - _parts_left(run, calls, calls.forward_ms)[case]) for calls in group)
    backward_ms = sum(calls.backward_ms * (1.0 - _parts_left(run, calls, calls.backward_ms)[case]) for calls in group)
    return forward_ms, backward_ms


def _parts_left(run: Evidence, calls: GrowingCalls, ms: float) -> tuple[float, float, float]:
    """Of the time that these calls take in forward, or in backward: at worst, likely and at best.

    What a call takes however long its input is, is known of forward. In backward it takes about as many milliseconds:
    0.7 in either for a GRU with embedding and head, of 2.7 and 5.3 in all, on a Neoverse N1.
    """
    linear = calls.needed / calls.computed if calls.computed else 1.0
    if run.on_gpu and is_gpu_bound(run):
        # What a call takes on the host says nothing of the device, which has as much less to do as there are fewer
        # elements; less than that where they are too few to fill it.
        return (1.0 + linear) / 2.0, linear, linear
    if ms <= 0:
        return 1.0, 1.0, 1.0
    fixed = min(1.0, calls.fixed_ms * calls.calls / ms)  # part of the time that is not by element
    by_element = (1.0 - fixed) * linear
    kept = fixed + by_element  # with a state or a cache: as many calls, each with its new elements only
    once = fixed * calls.sequences / max(1.0, calls.calls) + by_element
    # The step may have to make each element from the one before: then the calls stay. Attention still reads all that
    # it has kept, so less may be spared. Of the GRU above, over 24 elements, a state left 0.15 of the time of the
    # calls where this says 0.23, and one call 0.05 where this says 0.07.
    return (kept, once, once) if calls.is_known else ((1.0 + kept) / 2.0, kept, once)
