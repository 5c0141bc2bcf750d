"""Gradients are computed that no optimizer uses.

What it is: a module takes part in the step with gradients on, a teacher, a frozen backbone, a network for a perceptual
loss, but none of its weights is in an optimizer. Or its weights are in one, but their gradients are cleared before it
steps: the critic of a GAN is trained on `generator(z)` without `detach()`, the target of a Q network is computed from
the actor with gradients on. Such gradients are computed in every step, and nobody reads them.

Why the GPU idles: it does not; it computes gradients that are thrown away, and it keeps the activations for them.

How it shows in a run: in a window over a few steps, a module whose weights require gradients makes nodes that backward
runs. No optimizer has these weights, and nothing else changes them by their gradients. Or one has them, but in this
pass it is another optimizer's gradients that are used: those of the module are set to None or zero after that, before
their own optimizer steps, and these nodes lead to nothing else. Or a pass leads to an input that requires a gradient,
and the gradients of all weights that it makes on the way are cleared.

The fix: if nothing before the module needs a gradient, call it under `torch.no_grad()`. If gradients have to go through
it, switch off those of its weights once, before training: `teacher.requires_grad_(False)`. Where gradients are dropped,
detach what the module returns: `critic(generator(z).detach())`. For an input alone (an adversarial attack, Langevin
steps) ask for its gradient only: `(slope,) = torch.autograd.grad(loss, x)` instead of `loss.backward()`.

What to expect: under `no_grad`, or detached, all of its backward. With `requires_grad_(False)` up to half of it, as
gradients still go through. Losses and trained weights stay the same; memory is freed as well.

When it is fine: the script reads these gradients itself, for a penalty, an attribution or a pruning method.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from flatout.model.edits import Edits
from flatout.problems.compute.device import recorded_ms, spare_passes
from flatout.problems.found import WORTH, FoundInRun
from flatout.problems.hot_lines import place_name
from flatout.records.evidence import Evidence, NeedlessCall
from flatout.records.message import Message, message

CODE = "CO514"
# Of the backward of a module, what its weights' gradients take where gradients go on through it: a matrix product or a
# convolution needs as many operations for the weights as for the input; activations and norms need none for weights.
_WEIGHTS, _ALL = (0.2, 0.4, 0.5), (1.0, 1.0, 1.0)
# The same where only operations that have weights were counted.
_OF_PRODUCTS = (0.3, 0.5, 0.6)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    groups: dict[tuple[str, str, str, str], list[NeedlessCall]] = defaultdict(list)
    for call in run.needless_calls:
        if call.kind in ("unheld", "dropped"):
            # Operations of one function that are no call of a module have one cause.
            groups[call.kind, call.location.file, call.function, call.module].append(call)
    for calls in groups.values():
        through = any(call.flows_through for call in calls)
        backward_ms = sum(call.backward_ms for call in calls)
        parts = _ALL if not through else _OF_PRODUCTS if calls[0].kind == "dropped" else _WEIGHTS
        device_ms = recorded_ms(calls)
        if parts[1] * max(backward_ms, device_ms[1] if device_ms else 0.0) < WORTH * run.step_ms:
            continue
        worst = calls[0]
        yield FoundInRun(
            location=worst.location,
            evidence={
                "module": worst.module,
                "calls_per_step": round(sum(call.calls for call in calls), 2),
                "backward_ms_per_step": round(backward_ms, 3),
                "gradients_go_through": int(through),
            },
            cause=_cause(worst, backward_ms, run.step_ms, through),
            change=_change(worst, through),
            edits=Edits.between(
                spare_passes(run, 0.0, part * backward_ms, None if device_ms is None else part * device_ms[1])
                for part in parts
            ),
        )


def _cause(call: NeedlessCall, backward_ms: float, step_ms: float, through: bool) -> Message:
    line = place_name(call.location)
    if call.kind == "dropped":
        name = "co514.cause_for_input" if through else "co514.cause_dropped"
        return message(name, line=line, ms=backward_ms, step_ms=step_ms)
    return message("co514.cause", module=call.module, line=line, ms=backward_ms, step_ms=step_ms)


def _change(call: NeedlessCall, through: bool) -> Message:
    if call.kind == "dropped":
        name = "co514.change_for_input" if through else "co514.change_dropped"
        return message(name, line=place_name(call.location))
    return message("co514.change_through" if through else "co514.change_whole", module=call.module)
