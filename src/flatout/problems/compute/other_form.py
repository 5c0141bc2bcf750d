"""Operations whose time depends on the form in which they are written.

What it is: one matrix is expanded over the batch, and each of the batch is multiplied with it or factors it; Fourier
transforms have a length with large prime factors; one matrix is factored several times in a step, or inverted to be
multiplied with; an image is enlarged before a convolution of 1x1; a chain of matrix products is multiplied from the
wrong side.

Why the GPU idles: it does not; the processor computes what it need not. Hundreds of small products take longer than a
large one, backward fills a gradient of the matrix for each, and a transform of length 8191 takes twice as long as one
of 8192. `links @ links @ state` multiplies large matrices first, and `links @ (links @ state)` never does.

How it shows in a run: in a window over a few steps, the autograd graph has such an operation, by what it is given:
shapes, strides, lengths, and where it comes from. Both forms are timed with these sizes on this machine when the run
has ended, forward and backward. Only what is computed on the host, and needs gradients, is looked at.

The fix: one product of all rows, `x @ weight.T`. One `torch.linalg.slogdet(weight)` for all. Pad signals to a length
with no factors but 2, 3 and 5. One `torch.linalg.cholesky` in place of an inverse and `logdet`, and
`torch.cholesky_solve` for products with the inverse. The convolution of 1x1 before the interpolation. Parentheses
around the products that are cheaper first.

What to expect: the difference of the two times. Losses stay the same but for rounding. Another length of a transform
changes what is computed where the signal is not padded anyway, as it is for convolutions: then the gain is the most
there could be.

When it is fine: both forms take as long here; then nothing is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from string import ascii_uppercase

from flatout.model.edits import Edits
from flatout.problems.compute.device import spare_passes
from flatout.problems.found import KEEPS_FROM_HEALTH, FoundInRun, join_words
from flatout.problems.hot_lines import place_name
from flatout.records.evidence import Evidence, OtherForm
from flatout.records.message import Message, message

CODE = "CO525"
# Of what was timed, which is with other values and nothing else at work.
_PARTS = (0.6, 0.95, 1.0)
# Of autograd, at most, that only compute it: the operation, views, and an offset that is added.
_NODES = 5
# One matrix is spread over a batch: what is done with it goes with it.
_SPREAD = ("product", "factorization")


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    groups: dict[tuple[str, ...], list[OtherForm]] = defaultdict(list)
    for form in run.other_forms:
        if form.saved_ms > 0:
            groups[_SPREAD if form.kind in _SPREAD else (form.kind,)].append(form)
    for forms in groups.values():
        forward_ms, backward_ms = _saved(run, forms)
        if forward_ms + backward_ms >= KEEPS_FROM_HEALTH * run.step_ms:
            yield _found(run, forms, forward_ms, backward_ms)


def _found(run: Evidence, forms: Sequence[OtherForm], forward_ms: float, backward_ms: float) -> FoundInRun:
    worst = max(forms, key=_saves)
    all_ms = sum(map(_saves, forms))
    words = [
        _words(run, max(kind, key=_saves), (forward_ms + backward_ms) * sum(map(_saves, kind)) / all_ms)
        for kind in _by_kind(forms)
    ]
    if worst.kind == "transform" and not worst.is_padded:
        edits = Edits(spare_passes(run, forward_ms, backward_ms), is_most=True)
    else:
        edits = Edits.between(spare_passes(run, part * forward_ms, part * backward_ms) for part in _PARTS)
    return FoundInRun(
        location=worst.locations[0],
        evidence={
            "operation": " ".join(worst.names) if worst.kind != "product" else "bmm",
            "operations_per_step": round(sum(form.uses for form in forms), 2),
            "saved_ms_per_step": round(forward_ms + backward_ms, 3),
        },
        cause=join_words([cause for cause, _ in words]),
        change=join_words([change for _, change in words]),
        edits=edits,
    )


def _saves(form: OtherForm) -> float:
    return form.uses * form.saved_ms


def _by_kind(forms: Sequence[OtherForm]) -> list[list[OtherForm]]:
    """What saves most first."""
    kinds = [[form for form in forms if form.kind == kind] for kind in dict.fromkeys(form.kind for form in forms)]
    return sorted(kinds, key=lambda kind: -sum(map(_saves, kind)))


def _saved(run: Evidence, forms: Sequence[OtherForm]) -> tuple[float, float]:
    """Milliseconds of forward and of backward, no more than the lines take."""
    now_ms = sum(form.uses * sum(form.now_ms) for form in forms if form.now_ms is not None)
    other_ms = sum(form.uses * sum(form.other_ms) for form in forms if form.other_ms is not None)
    places = {place for form in forms for place in form.locations}
    costs = [cost for cost in run.op_costs if cost.location in places]
    forward_ms, backward_ms = sum(cost.forward_ms for cost in costs), sum(cost.backward_ms or 0.0 for cost in costs)
    lines_ms = forward_ms + backward_ms
    if sum(cost.backward_ops for cost in costs) <= _NODES * sum(form.uses for form in forms):
        # They do nothing else, and take longer for it than a process that ends: new memory comes quicker there.
        now_ms = max(now_ms, lines_ms)
    part = min(1.0, (now_ms - other_ms) / lines_ms) if lines_ms else 0.0
    return part * forward_ms, part * backward_ms


def _words(run: Evidence, form: OtherForm, ms: float) -> tuple[Message, Message]:
    """What it is, and what to do."""
    facts = {"line": place_name(form.locations[0]), "ms": ms, "step_ms": run.step_ms}
    if form.kind == "product":
        return message("co525.cause_product", count=form.sizes[0], **facts), message("co525.change_product")
    names = ", ".join(form.names)
    if form.kind == "factorization":
        change = message("co525.change_factorization", names=names)
        return message("co525.cause_factorization", count=form.sizes[0], names=names, **facts), change
    if form.kind == "transform":
        assert form.lengths is not None
        length, other = form.lengths
        change = message("co525.change_padded" if form.is_padded else "co525.change_transform", other=other)
        return message("co525.cause_transform", length=length, other=other, **facts), change
    if form.kind == "factored_again":
        cause = message("co525.cause_factored_again", size=form.sizes[1], names=names, **facts)
        return cause, message("co525.change_factored_again")
    if form.kind == "chain":
        half = len(form.options) // 2
        now, order = (_expression(form.sizes[1:], part) for part in (form.options[:half], form.options[half:]))
        cause = message("co525.cause_chain", shapes=_shapes(form.sizes[1:]), now=now, order=order, **facts)
        return cause, message("co525.change_chain", order=order)
    _, _, height, width, high, wide, _ = form.sizes
    cause = message("co525.cause_enlarged", pixels=high * wide / (height * width), **facts)
    return cause, message("co525.change_enlarged")


def _shapes(lengths: Sequence[int]) -> str:
    return ", ".join(f"{rows} x {columns}" for rows, columns in pairwise(lengths))


def _expression(lengths: Sequence[int], order: Sequence[int]) -> str:
    """Such as A @ (B @ c); an order tells where each product splits its matrices, the whole first, then its left."""
    splits = iter(order)

    def write(first: int, end: int) -> str:
        if end - first == 1:
            letter = ascii_uppercase[first]
            return letter.lower() if 1 in (lengths[first], lengths[end]) else letter
        split = next(splits)
        parts = [(write(first, split), split - first), (write(split, end), end - split)]
        return " @ ".join(f"({text})" if count > 1 else text for text, count in parts)

    return write(0, len(lengths) - 1)
