"""An attention as one call of `scaled_dot_product_attention`, and as its formula, to judge that by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

from ...records.message import message
from .attention_chain import HOLE, Factor, Fill, Kind, Node, Plan, Scores, State, Term
from .attention_letters import Called, Layout, Product, Shape, Tail, operand_layout, product_of, tail_of, term_layout
from .attention_masks import Mask, Masks, Step, Unfit

# Puts others in the place of the script's tensors.
Swap = Callable[[Any], Any]


def keep(tensor: Any) -> Any:
    return tensor


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A factor, term or fill: in which operation, with which of its tensors, and how that is laid out."""

    at: int
    of: Factor | Term | Fill
    which: int
    layout: Layout | None
    has_tensor: bool = False
    is_trained: bool = False


@dataclass(eq=False)
class Ending:
    """Weights of a plan that a last product takes: what is the same of an attention in every call of its form."""

    weights: Plan
    product: Product
    tail: Tail
    # Where in the arguments of the last product the weights and the value are.
    weights_at: int
    value_at: int
    state: State
    value_form: tuple[Shape, Any, bool]
    # None until it is known.
    dtype: Any = None
    # What was found out about it, by what else makes another kernel of it.
    known: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def path(self) -> list[Plan]:
        return self.weights.path()

    @cached_property
    def target(self) -> tuple[int, int]:
        """Batch and heads: as they are where something is added, for that is best left broadcast."""
        shifted = [plan.batch for plan in self.path if isinstance(plan.given, Term | Fill)]
        best = max([self.path[0].batch, *shifted], key=len)
        return (prod(best[:-1]), best[-1]) if len(best) > 1 else (best[0] if best else 1, 1)

    @cached_property
    def operands(self) -> tuple[Layout, Layout, Layout]:
        """Of the first product's two, and of the value."""
        scores: Scores = self.path[0].given
        head, product, batch = scores.head, scores.product, self.path[0].batch
        (first, *_), (second, *_) = self.path[0].forms[:2]
        return (
            operand_layout(first, product.first, head.batch + head.first + head.summed, batch, self.target),
            operand_layout(second, product.second, head.batch + head.second + head.summed, batch, self.target),
            operand_layout(self.value_form[0], self.tail.letters, self.tail.order, self.weights.batch, self.target),
        )

    @cached_property
    def steps(self) -> list[StepPlan]:
        """What scales, shifts or fills."""
        scores: Scores = self.path[0].given
        found = [self._step(0, Term(scores.beta), 2)] if scores.is_added else []
        return found + [
            self._step(at, plan.given, 0)
            for at, plan in enumerate(self.path)
            if isinstance(plan.given, Factor | Term | Fill)
        ]

    def _step(self, at: int, of: Factor | Term | Fill, which: int) -> StepPlan:
        plan, is_turned = self.path[at], bool(self.weights.key_is_first)
        if not plan.forms:
            return StepPlan(at, of, which, None)
        shape, _, is_trained = plan.forms[which]
        layout = term_layout(shape, plan.axes, plan.batch, is_turned, self.target) if shape else None
        return StepPlan(at, of, which, layout, True, is_trained)

    @cached_property
    def factors(self) -> list[StepPlan]:
        """That are tensors."""
        return [step for step in self.steps if isinstance(step.of, Factor) and step.has_tensor]

    @cached_property
    def shifts(self) -> tuple[list[StepPlan], list[StepPlan]]:
        """What makes up what is added to the scores: not trained, and trained. Factors after a term are of both."""
        first = next((n for n, step in enumerate(self.steps) if not isinstance(step.of, Factor)), len(self.steps))
        steps = self.steps[first:]
        of_trained = [step for step in steps if isinstance(step.of, Factor) or step.is_trained]
        others = [step for step in steps if isinstance(step.of, Factor) or not step.is_trained]
        return tuple(  # type: ignore[return-value]
            part if any(not isinstance(step.of, Factor) for step in part) else [] for part in (others, of_trained)
        )

    @cached_property
    def mask_dtype(self) -> Any:
        """Of the scores when something was last added to them."""
        return next(
            (plan.dtype for plan in reversed(self.path) if isinstance(plan.given, Term | Fill)), self.path[0].dtype
        )

    @cached_property
    def scale(self) -> float:
        numbers = [step.of.number for step in self.steps if isinstance(step.of, Factor) and not step.has_tensor]
        alpha: float = self.path[0].given.alpha
        return alpha * prod(numbers)

    @cached_property
    def p(self) -> float:
        """Of the dropout."""
        return next((float(plan.given) for plan in self.path if plan.kind is Kind.DROPOUT), 0.0)

    @cached_property
    def sign(self) -> Any:
        """Equal for attentions that are computed alike, whatever their sizes."""
        of_tensors = [tuple((dtype, needs) for _, dtype, needs in plan.forms) for plan in self.path]
        steps = [(plan.kind, plan.given, plan.dtype, plan.state, plan.axes) for plan in self.path]
        first, second, value = (form[0] for form in (*self.path[0].forms[:2], self.value_form))
        scores: Scores = self.path[0].given
        widths = (first[scores.product.first.index(scores.head.summed)], value[-1])
        last = (self.product, self.tail, self.value_form[1:], self.dtype, self.weights.device)
        return (*steps, *of_tensors, widths, len(second), *last)

    def in_script(self, out: Any) -> Any:
        """From batch, heads, positions and width to what the last product gives."""
        batch, order = self.weights.batch, self.tail.out
        out = out if out.shape[:-2] == batch else out.reshape(*batch, *out.shape[-2:])
        return out if order == tuple(range(len(order))) else out.permute(order)

    def from_script(self, out: Any) -> Any:
        """The other way round."""
        order = self.tail.out
        out = out.permute([order.index(at) for at in range(len(order))])
        return out.reshape(*self.target, *out.shape[-2:])


def find_ending(weights: Plan, called: Called, weights_at: int, state: State, value: Any) -> Ending | None:
    """None if this product does not end a chain."""
    found = product_of(called) if called.name != "baddbmm" else None
    path = weights.path()
    if found is None or weights.key_is_first is None or state != path[0].state:
        return None
    product, at = found
    tail = tail_of(product, weights_at - at, weights.axes, weights.key)
    drops = sum(plan.kind is Kind.DROPOUT for plan in path)
    if tail is None or drops > 1 or any(plan.state.grad != state.grad for plan in path):
        return None
    form = (tuple(value.shape), value.dtype, value.requires_grad)
    return Ending(weights, product, tail, weights_at, 2 * at + 1 - weights_at, state, form)


@dataclass(slots=True)
class Attention:
    """A whole chain in one call."""

    ending: Ending
    nodes: list[Node]
    # The last product, with a hole for the weights.
    called: Called
    value: Any
    value_version: int

    @property
    def tensors(self) -> list[Any]:
        """What the result depends on."""
        return [*(tensor for node in self.nodes for tensor in node.tensors), self.value]

    @property
    def is_unchanged(self) -> bool:
        for node in self.nodes:
            for tensor, version in zip(node.tensors, node.versions, strict=True):
                if tensor._version != version:
                    return False
        return bool(self.value._version == self.value_version)

    def tensor_of(self, step: StepPlan) -> Any:
        return self.nodes[step.at].tensors[step.which] if step.has_tensor else None

    def steps(self, plans: list[StepPlan], swap: Swap = keep) -> list[Step]:
        """With tensors of four dimensions."""
        found = []
        for plan in plans:
            tensor = swap(self.tensor_of(plan)) if plan.has_tensor else None
            found.append(Step(plan.of, tensor if plan.layout is None else plan.layout.of(tensor)))
        return found

    def operands(self, swap: Swap = keep) -> tuple[Any, Any, Any]:
        """Query, key and value, over batch, head, position and width."""
        layouts, (first, second, *_) = self.ending.operands, self.nodes[0].tensors
        first, second = layouts[0].of(swap(first)), layouts[1].of(swap(second))
        value = layouts[2].of(swap(self.value))
        return (second, first, value) if self.ending.weights.key_is_first else (first, second, value)


def make_attention(ending: Ending, weights: Node, called: Called) -> Attention:
    at = ending.weights_at
    value = called.args[ending.value_at]
    called = called.given((*called.args[:at], HOLE, *called.args[at + 1 :]))
    return Attention(ending, weights.path(), called, value, value._version)


@dataclass(slots=True)
class Call:
    """What the fused kernel is given."""

    ending: Ending
    query: Any
    key: Any
    value: Any
    mask: Mask
    added: Any
    is_causal: bool

    @property
    def form(self) -> tuple[bool, bool, bool]:
        """What makes another kernel of it."""
        return (self.added is not None, self.is_causal, self.query.shape[-2] == self.key.shape[-2])

    def run(self, torch: Any, p: float) -> Any:
        return self.ending.in_script(
            torch.nn.functional.scaled_dot_product_attention(
                self.query,
                self.key,
                self.value,
                attn_mask=self.added,
                dropout_p=p,
                is_causal=self.is_causal,
                scale=self.ending.scale,
            )
        )


def make_call(
    attention: Attention, masks: Masks, is_recorded: bool, swap: Swap = keep, like: Call | None = None
) -> Call:
    """`is_recorded`: see `Masks.of`. `like`: one of the same attention, which a mask is taken from.

    Raises Unfit.
    """
    ending = attention.ending
    query, key, value = attention.operands(swap)
    for factor in attention.steps(ending.factors, swap):
        query, key = _scaled(factor, query, key)
    dtype, sizes = ending.dtype, (query.shape[-2], key.shape[-2])
    fixed, trained = ending.shifts
    mask = like.mask if like is not None else Mask()
    if fixed and (like is None or any(step.is_trained for step in fixed)):
        tensors = [swap(attention.tensor_of(step)) for step in fixed if step.has_tensor]
        mask = masks.of(ending, tensors, lambda: attention.steps(fixed, swap), sizes, ending.mask_dtype, is_recorded)
    added, is_causal = mask.added, mask.is_causal
    if trained or added is not None:
        if is_causal:
            mask, is_causal = Mask(masks.triangle(sizes, query.device)), False
        added = masks.add(mask, attention.steps(trained, swap), dtype)
    if mask.is_hidden is not None:
        query = query.masked_fill(mask.is_hidden, 0.0)
    return Call(ending, _ready(query, dtype), _ready(key, dtype), _ready(value, dtype), mask, added, is_causal)


def _scaled(step: Step, query: Any, key: Any) -> tuple[Any, Any]:
    if not step.tensor.dim() or step.tensor.shape[-1] == 1:
        return step.scale(query), key
    if step.tensor.shape[-2] == 1:
        return query, replace(step, tensor=step.tensor.transpose(-2, -1)).scale(key)
    raise Unfit(message("attention.scaled_one_by_one"))


def _ready(tensor: Any, dtype: Any) -> Any:
    """Of this dtype, and with the width last in memory, as fused kernels take it."""
    tensor = tensor if tensor.dtype is dtype else tensor.to(dtype)
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def compute_exactly(attention: Attention, samples: int, heads: int, swap: Swap) -> Any:
    """The formula, an operation at a time, of the first samples and heads."""

    def part(tensor: Any) -> Any:
        return tensor[:samples, :heads] if tensor.dim() else tensor

    query, key, value = (part(tensor) for tensor in attention.operands(swap))
    scores = attention.nodes[0].plan.given.alpha * (query @ key.transpose(-2, -1))
    for step in attention.steps(attention.ending.steps, swap):
        step = step if step.tensor is None else replace(step, tensor=part(step.tensor))
        if isinstance(step.of, Factor):
            scores = step.scale(scores)
        elif isinstance(step.of, Term):
            scores = scores + step.of.factor * step.tensor
        else:
            scores = scores.masked_fill(step.mask, step.of.value)
    return scores.softmax(-1) @ value
