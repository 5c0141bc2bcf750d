"""A module is called again with an input it has had in the same step.

What it is: the same module, or the same function of yours, computes the same result twice in a step. A generator is
called once for each of its losses, the model is called again for a metric, an encoder runs once for each head, a method
that makes all embeddings is called for each part of the batch.

Why the GPU idles: it does not; it computes something that is known already, and in backward it goes through both.

How it shows in a run: in a window over a few steps, a module is called with the same tensors, unchanged, while its
weights are the same as well. On a CPU the results were compared, too. Functions are only looked at there: one that is
called with the same arguments, makes operations of autograd, and gives the same values.

The fix: keep the first result and use it again: `fake = generator(z)` once, then `critic(fake)` and, where no gradient
may go through it, `critic(fake.detach())`. For a metric take what the training has computed: `logits.detach()`.

What to expect: all of the time of the further calls, their backward included. Gradients are the same but for rounding.
With dropout the results differ from call to call, so a metric will not be the same to the bit. Running statistics of
batch normalisation are updated by each call.

When it is fine: the calls are meant to differ, by dropout for instance, and both are trained on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from flatout.model.edits import Edits
from flatout.problems.compute.device import recorded_ms, spare_passes
from flatout.problems.found import WORTH, FoundInRun
from flatout.problems.hot_lines import place_name
from flatout.records.evidence import Evidence, NeedlessCall
from flatout.records.message import message

CODE = "CO513"
# By how the further results are to the first.
_CHANGES = {"same": "co513.change_same", "state": "co513.change_state", "random": "co513.change_random"}


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    for calls in _group([call for call in run.needless_calls if call.kind == "repeat"]):
        forward_ms, backward_ms = sum(call.forward_ms for call in calls), sum(call.backward_ms for call in calls)
        device_ms = recorded_ms(calls)
        if max(forward_ms + backward_ms, sum(device_ms or ())) < WORTH * run.step_ms:
            continue
        worst = calls[0]
        first = worst.first_location or worst.location
        state = "random" if worst.is_random else "state" if any(call.moves_state for call in calls) else "same"
        yield FoundInRun(
            location=worst.location,
            evidence={
                "module": worst.module,
                "calls_per_step": round(sum(call.calls for call in calls), 2),
                "forward_ms_per_step": round(forward_ms, 3),
                "backward_ms_per_step": round(backward_ms, 3),
                "first_at": place_name(first),
                "result": state,
            },
            cause=message(
                "co513.cause",
                module=worst.module,
                calls=sum(call.calls for call in calls),
                first=place_name(first),
                ms=forward_ms + backward_ms,
                step_ms=run.step_ms,
            ),
            change=message(_CHANGES[state], first=place_name(first)),
            edits=Edits(spare_passes(run, forward_ms, backward_ms, None if device_ms is None else sum(device_ms))),
        )


def _group(calls: Sequence[NeedlessCall]) -> list[list[NeedlessCall]]:
    """Calls that one change spares: what a function calls again, and whatever repeats the same first call."""
    groups: list[tuple[set[Hashable], list[NeedlessCall]]] = []
    for call in calls:
        keys: set[Hashable] = {(call.location.file, call.function)}
        if call.first_location is not None:
            keys.add((call.module, call.first_location))
        akin = [group for group in groups if group[0] & keys]
        groups = [group for group in groups if not group[0] & keys]
        groups.append((keys.union(*(group[0] for group in akin)), [*(c for group in akin for c in group[1]), call]))
    return [sorted(found, key=lambda call: -call.forward_ms - call.backward_ms) for _, found in groups]
