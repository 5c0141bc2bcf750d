"""Is the fused kernel as good as what the script computes, on the script's own tensors?

Both are run, forward and backward, without dropout, and a part of the batch in float64 as well. What counts is how far
each is from that: a few times the distance of the script's own form is the most that the fused one may be away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...records.message import Message, message
from ..model.attention_call import Attention, Call, Swap, compute_exactly, make_call
from ..model.attention_chain import HOLE, Kind, State
from ..model.attention_masks import Masks
from ..model.attention_tracing import in_state, run_again
from ..model.repeated_calls import RandomNumbers

# So many times the error that rounding makes in the script's own form, or in a single number.
MOST_TIMES = 8.0
# Scores in the part that is computed in float64: of whole heads, at least one.
_MOST_SCORES = 1 << 22
_FEW = 64


@dataclass(frozen=True, slots=True)
class Proof:
    # Why not, if it does not hold.
    why_not: Message | None
    # By how many times the script's own error.
    times: float
    # And not about the room for it.
    is_about_numbers: bool = True


@dataclass(frozen=True, slots=True)
class Sample:
    """An attention of the script, with its tensors as they were."""

    attention: Attention
    call: Call

    def release(self) -> None:
        """What was computed of the chain is not needed."""
        for node in self.attention.nodes:
            node.real = None


def prove(torch: Any, sample: Sample, masks: Masks) -> Proof:
    numbers = RandomNumbers(torch, sample.call.query.device)
    try:
        return _Trial(torch, sample).proof(masks)
    except torch.OutOfMemoryError:
        return Proof(message("attention.no_room"), 0.0, is_about_numbers=False)
    finally:
        numbers.restore()


class _Trial:
    def __init__(self, torch: Any, sample: Sample) -> None:
        self._torch = torch
        self._attention = sample.attention
        self._call = sample.call
        self._ending = sample.call.ending
        self._needs_gradients = self._ending.state.grad
        _, heads, queries, _ = sample.call.query.shape
        most = max(1, _MOST_SCORES // (queries * sample.call.key.shape[-2]))
        # Either some heads of the first sample, or some samples as a whole.
        self._part = (max(1, most // heads), min(heads, most))

    def proof(self, masks: Masks) -> Proof:
        torch = self._torch
        with torch.inference_mode(False), torch.enable_grad():
            seed = self._make_seed()
            plain = self._results(seed, self._run_as_in_script)
            fused = self._results(
                seed, lambda swap: make_call(self._attention, masks, False, swap, like=self._call).run(torch, 0.0)
            )
            exact = self._compute_exactly(seed)
        return self._judge(plain, fused, exact)

    def _make_seed(self) -> Any:
        """What comes back in backward: nothing but for the part, so that gradients depend on that alone."""
        torch, query = self._torch, self._call.query
        shape = (*query.shape[:-1], self._call.value.shape[-1])
        samples, heads = self._part
        seed = torch.zeros(shape, dtype=self._ending.dtype, device=query.device)
        random = torch.Generator(query.device).manual_seed(0)
        part = seed[:samples, :heads]
        part.copy_(torch.randn(part.shape, generator=random, device=query.device))
        return seed

    def _leaves(self, dtype: Any = None) -> dict[int, Any]:
        """Instead of tensors that are differentiated, or of all that are computed with, by their identity."""
        found: dict[int, Any] = {}
        for tensor in self._attention.tensors:
            if tensor.is_floating_point() and (tensor.requires_grad or dtype is not None):
                leaf = tensor.detach() if dtype is None else tensor.detach().to(dtype)
                found[id(tensor)] = leaf.requires_grad_(tensor.requires_grad and self._needs_gradients)
        return found

    def _results(self, seed: Any, run: Callable[[Swap], Any]) -> tuple[Any, list[Any]]:
        """Over batch, head, position and width; and the gradients."""
        leaves = self._leaves()
        out = run(lambda tensor: leaves.get(id(tensor), tensor))
        ending = self._ending
        return ending.from_script(out.detach()), self._gradients(out, ending.in_script(seed), leaves)

    def _gradients(self, out: Any, seed: Any, leaves: dict[int, Any]) -> list[Any]:
        wanted = [leaf for leaf in leaves.values() if leaf.requires_grad]
        if not wanted or not out.requires_grad:
            return []
        return list(self._torch.autograd.grad((out * seed).sum(), wanted))

    def _run_as_in_script(self, swap: Swap) -> Any:
        """Without dropout."""
        torch, called = self._torch, self._attention.called
        real: Any = None
        for node in self._attention.nodes:
            if node.plan.kind is not Kind.DROPOUT:
                real = run_again(torch, node, real, swap)
        with in_state(torch, self._ending.state, self._call.query.device):
            return called.func(*(real if arg is HOLE else swap(arg) for arg in called.args))

    def _compute_exactly(self, seed: Any) -> tuple[Any, list[Any]]:
        leaves = self._leaves(self._torch.float64)
        samples, heads = self._part
        with in_state(self._torch, State(None, True), seed.device):
            out = compute_exactly(self._attention, samples, heads, lambda tensor: leaves.get(id(tensor), tensor))
            return out.detach(), self._gradients(out, seed[:samples, :heads].double(), leaves)

    def _judge(self, plain: Any, fused: Any, exact: Any) -> Proof:
        torch = self._torch
        samples, heads = self._part
        if not torch.equal(plain[0].isnan(), fused[0].isnan()):
            return Proof(message("attention.other_rows"), 0.0)
        unit = torch.finfo(self._ending.dtype).eps / 2
        worst = most = 0.0
        pairs = [(plain[0][:samples, :heads], fused[0][:samples, :heads], exact[0], 0.0)]
        pairs += list(zip(plain[1], fused[1], exact[1], self._sizes(exact[1]), strict=True))
        for script, kernel, truth, size in pairs:
            error = max(_distance(script, truth, size), unit)
            most = max(most, error)
            worst = max(worst, _distance(kernel, truth, size) / error)
        # The rest of the batch is compared with the script's own form.
        worst = max(worst, _distance(fused[0], plain[0]) / (most * (1.0 + worst)))
        # One that is not a number does not pass either.
        is_close = worst <= MOST_TIMES
        return Proof(None if is_close else message("attention.rounds_more", times=worst), worst)

    def _sizes(self, gradients: list[Any]) -> list[float]:
        """What errors of gradients are measured by at least: where there are few, nearly all may have cancelled out.

        A temperature's, times itself, is the sum of the queries' times themselves.
        """
        tensors = {id(tensor): tensor for tensor in self._attention.tensors if tensor.requires_grad}
        norms = [float(tensor.detach().norm()) for tensor in tensors.values()]
        pairs = list(zip(norms, gradients, strict=False))
        reach = max((size * float(gradient.norm()) for size, gradient in pairs), default=0.0)
        return [reach / size if gradient.numel() <= _FEW and size else 0.0 for size, gradient in pairs]


def _distance(value: Any, truth: Any, least: float = 0.0) -> float:
    """As a share of what it should be; what is not a number in both is left out."""
    value, truth = value.double(), truth.double()
    is_known = ~(value.isnan() | truth.isnan())
    value, truth = value[is_known], truth[is_known]
    size = max(float(truth.norm()), least)
    return float((value - truth).norm()) / size if size else float((value - truth).norm())
