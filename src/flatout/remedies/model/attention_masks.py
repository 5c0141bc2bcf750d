"""What is added to the scores of an attention: one tensor for all that masks and shifts them.

It gives what the script's own operations give, also where a row is masked as a whole, as may happen at any time. Such
a row is NaN where it was filled with minus infinity. Where something finite was filled in, or so much taken away that
nothing is left of the scores in their precision, it is the mean of all values; the row's query is made zero for that.
Kernels are never given a row of large numbers alone: they add the logarithm of a sum to its largest, and lose it.

Masks that are made of a module's own buffers and of plain numbers are known by how they were made: what is the same in
every call is built once, and compared with the causal triangle once.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...feed.reasons import Reasoned
from .attention_chain import HIGHEST_FILL, Factor, Fill, Term
from .attention_letters import Called

# Low enough to be nothing after a softmax; kernels that multiply by log2(e) do not overflow.
FLOOR = -1e30
# A score is lost in a number whose last place is so large.
_LOST = 16.0
# From here on a row is brought back to zero: a softmax is the same wherever its row begins.
_FAR = -1e3
_MOST_VERDICTS, _MOST_MADE = 1000, 4


class Unfit(Reasoned):
    """This attention cannot be computed by the fused kernel in the same way."""


# How a tensor came about, where it depends on nothing but constants and tensors that are known.

_MAKES = ("ones", "zeros", "full", "arange", "tensor", "scalar_tensor", "eye")
_LIKES = ("full_like", "ones_like", "zeros_like", "new_ones", "new_zeros", "new_full", "new_tensor")
_DERIVES = (
    "__getitem__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "eq", "ne", "lt", "le", "gt", "ge",
    "logical_not", "bitwise_not", "__invert__", "logical_and", "logical_or", "bitwise_and", "bitwise_or", "__and__",
    "__or__", "bool", "to", "type", "type_as", "float", "half", "bfloat16", "int", "long", "unsqueeze", "squeeze",
    "view", "reshape", "expand", "expand_as", "repeat", "tril", "triu", "masked_fill", "where", "mul", "div", "add",
    "sub", "rsub", "__rsub__", "neg", "transpose", "permute", "contiguous", "detach", "flip",
)  # fmt: skip
MAKES_MASKS = frozenset((*_MAKES, *_LIKES, *_DERIVES))
_TAKE_FORM = ("to", "type_as", "expand_as", "view_as")
_NUMBERS = {"full": 1, "full_like": 1, "new_full": 2, "tensor": 0, "scalar_tensor": 0, "new_tensor": 1}
_PLAIN = (bool, int, float, str, type(None), type(Ellipsis), slice)


@dataclass(slots=True)
class Origin:
    """Equal keys mean equal contents. Fixed ones come from constants and a module's own buffers alone."""

    key: Any
    is_fixed: bool


@dataclass(slots=True)
class _Known:
    """What is known of a tensor as it is at this version: its number, its origin, or the call that made it."""

    tensor: weakref.ref[Any]
    version: int
    value: Any

    def is_of(self, tensor: Any) -> bool:
        return bool(self.version == tensor._version and self.tensor() is tensor)


@dataclass(slots=True)
class _Made:
    """By this call, of tensors at these versions."""

    called: Called
    versions: tuple[int, ...]


class Origins:
    """Of tensors that need no gradient. None of them is kept alive by this."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._plain_types = frozenset((*_PLAIN, torch.dtype, torch.device, torch.Size, torch.layout))
        self._serial = 0
        self._bases: dict[int, tuple[weakref.ref[Any], int, bool]] = {}
        self._derived: dict[int, _Known] = {}
        self._numbers: dict[int, _Known] = {}

    def add_fixed(self, module: Any) -> None:
        """What it holds beside its weights is the same in every call, until it is written into."""
        for part in module.modules():
            for tensor in (*part._buffers.values(), *vars(part).values()):
                if type(tensor) is self._torch.Tensor and not tensor.requires_grad and not tensor.is_inference():
                    self._base(tensor, is_fixed=True)

    def forget_calls(self) -> None:
        """What was made meanwhile is of no use in another call."""
        self._derived.clear()
        self._numbers.clear()

    def note(self, called: Called, result: Any) -> None:
        """The call gave this."""
        torch = self._torch
        if type(result) is not torch.Tensor or result.requires_grad or result.is_inference():
            return
        key, reference = id(result), weakref.ref(result)
        if called.name in _NUMBERS:
            value = called.argument(_NUMBERS[called.name], "fill_value")
            if isinstance(value, int | float) and not isinstance(value, bool):
                rounded = float(torch.tensor(value, dtype=result.dtype, device="cpu"))
                self._numbers[key] = _Known(reference, result._version, rounded)
        tensors = [arg for arg in called.args if isinstance(arg, torch.Tensor)]
        # Without gradients, what a model computes with looks like a mask; it is not to be kept until the call ends.
        is_mask = not result.is_floating_point() or torch.is_grad_enabled() or not tensors
        if is_mask or any(self._is_known(tensor) for tensor in tensors):
            made = _Made(called, tuple(tensor._version for tensor in tensors))
            self._derived[key] = _Known(reference, result._version, made)

    def _is_known(self, tensor: Any) -> bool:
        return id(tensor) in self._derived or self._bases.get(id(tensor), (None, 0, False))[2]

    def of(self, tensor: Any) -> Origin | None:
        if type(tensor) is not self._torch.Tensor or tensor.requires_grad or tensor.is_inference():
            return None
        derived = self._derived.get(id(tensor))
        if derived is None or not derived.is_of(tensor):
            serial, is_fixed = self._base(tensor, is_fixed=False)
            return Origin((serial, tensor._version), is_fixed)
        if isinstance(derived.value, _Made):
            derived.value = self._origin(derived.value)
        origin: Origin | None = derived.value
        return origin

    def _origin(self, made: _Made) -> Origin | None:
        called = made.called
        name, args = called.name, called.args
        tensors = [arg for arg in args if isinstance(arg, self._torch.Tensor)]
        if made.versions != tuple(tensor._version for tensor in tensors):
            return None
        # Of some tensors only the form is used.
        at = 0 if name in _LIKES else 1 if name in _TAKE_FORM else -1
        key, origins = [name], []
        for n, arg in enumerate((*args, *called.kwargs.items())):
            if isinstance(arg, self._torch.Tensor) and n != at:
                origin = self.of(arg)
                if origin is None:
                    return None
                origins.append(origin)
                key.append(origin.key)
            else:
                plain = self._plain_key((arg.dtype, arg.shape) if n == at and hasattr(arg, "dtype") else arg)
                if plain is None:
                    return None
                key.append(plain)
        return Origin(tuple(key), all(origin.is_fixed for origin in origins))

    def _plain_key(self, value: Any) -> str | None:
        """None for what may hold tensors."""
        return repr(value) if self._is_known_kind(value) else None

    def _is_known_kind(self, value: Any) -> bool:
        kind = type(value)
        if kind is tuple or kind is list:
            return all(self._is_known_kind(item) for item in value)
        return kind in self._plain_types

    def number_of(self, tensor: Any) -> float | None:
        if tensor.requires_grad or (tensor.dim() and not self._numbers) or tensor.is_inference():
            return None
        known = self._numbers.get(id(tensor))
        if known is not None and known.is_of(tensor):
            return float(known.value)
        # The device is not waited for.
        return float(tensor.item()) if tensor.device.type == "cpu" and not tensor.dim() else None

    def _base(self, tensor: Any, is_fixed: bool) -> tuple[int, bool]:
        key = id(tensor)
        known = self._bases.get(key)
        if known is None or known[0]() is not tensor:
            self._serial += 1
            bases = self._bases

            def drop(reference: weakref.ref[Any]) -> None:
                if key in bases and bases[key][0] is reference:
                    del bases[key]

            known = self._bases[key] = (weakref.ref(tensor, drop), self._serial, is_fixed)
        return known[1], known[2]


# Steps from the product to the softmax, over batch, head, query and key.


@dataclass(frozen=True, slots=True)
class Step:
    """A factor, a term or a fill, and its tensor in four dimensions, or of none."""

    of: Factor | Term | Fill
    tensor: Any

    @property
    def mask(self) -> Any:
        assert isinstance(self.of, Fill)
        return ~self.tensor if self.of.is_inverted else self.tensor

    def scale(self, tensor: Any) -> Any:
        assert isinstance(self.of, Factor)
        if self.tensor is None:
            return tensor * self.of.number
        return tensor / self.tensor if self.of.divides else tensor * self.tensor


@dataclass(slots=True)
class Mask:
    """What is added to the scores, unless it is the causal triangle or nothing."""

    added: Any = None
    is_causal: bool = False
    # Rows of which no score is left, where there may be some.
    is_hidden: Any = None


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What a look at a fixed mask has shown."""

    is_causal: bool
    # Of no row all scores are lost.
    is_open: bool


class Masks:
    def __init__(self, torch: Any, origins: Origins) -> None:
        self._torch = torch
        self._origins = origins
        self._verdicts: dict[Any, _Verdict] = {}
        # What this step's layers share.
        self._made: dict[Any, Mask] = {}

    def of(  # noqa: PLR0913 (of one attention)
        self,
        form: Any,
        tensors: list[Any],
        make_steps: Callable[[], list[Step]],
        sizes: tuple[int, int],
        dtype: Any,
        is_recorded: bool,
    ) -> Mask:
        """Of steps that are not trained; equal forms and contents of these tensors mean an equal mask.

        `sizes` are those of queries and keys, `dtype` is that of the scores. `is_recorded`: within a CUDA graph, where
        the device cannot be waited for, and nothing may be used that was made outside.
        """
        origins = [self._origins.of(tensor) for tensor in tensors]
        key: Any = None
        if None not in origins:
            key = (form, *[origin.key for origin in origins if origin is not None])
        verdict = self._verdicts.get(key)
        is_fixed = key is not None and all(origin is not None and origin.is_fixed for origin in origins)
        if verdict is None and is_fixed and not is_recorded:
            verdict = self._look(self._build(make_steps(), dtype), *sizes)
            _keep(self._verdicts, _MOST_VERDICTS, key, verdict)
        if verdict is not None and verdict.is_causal:
            return Mask(is_causal=True)
        made = None if is_recorded else self._made.get(key)
        if made is None:
            made = self._build(make_steps(), dtype)
            if verdict is not None and verdict.is_open:
                made.is_hidden = None
            if key is not None and not is_recorded:
                _keep(self._made, _MOST_MADE, key, made)
        return made

    def forget_step(self) -> None:
        self._made.clear()

    def add(self, mask: Mask, trained: list[Step], dtype: Any) -> Any:
        """All that is added, of this dtype."""
        total = mask.added
        shift: Any = None
        for step in trained:
            if isinstance(step.of, Term):
                term = step.tensor if step.of.factor == 1.0 else step.tensor * step.of.factor
                shift = term if shift is None else shift + term
            elif shift is not None:
                shift = step.scale(shift)
        total = shift if total is None else total if shift is None else total + shift
        return None if total is None else self._in(dtype, total)

    def triangle(self, sizes: tuple[int, int], device: Any) -> Any:
        """The causal one, where something is added to it."""
        torch = self._torch
        later = torch.ones(sizes, dtype=torch.bool, device=device).triu(1)
        return torch.where(later, FLOOR, 0.0)

    def _build(self, steps: list[Step], dtype: Any) -> Mask:
        torch = self._torch
        total: Any = None
        for step in steps:
            of = step.of
            if isinstance(of, Fill):
                low = -math.inf if of.value == -math.inf else FLOOR
                total = torch.where(step.mask, low, 0.0 if total is None else total)
            elif isinstance(of, Term):
                term = step.tensor if step.tensor.is_floating_point() else step.tensor.to(torch.float32)
                term = term if of.factor == 1.0 else term * of.factor
                total = term if total is None else total + term
            elif total is not None:
                total = step.scale(total)
        if total is None:
            return Mask()
        highest = total.amax(-1, keepdim=True)
        is_hidden = highest <= -_LOST / torch.finfo(dtype).eps
        added = (total - torch.where(highest < _FAR, highest, 0.0)).clamp(min=FLOOR)
        # Minus infinity less itself is not a number, as it is in the script's own softmax.
        return Mask(added.masked_fill(is_hidden & (highest > -math.inf), 0.0), is_hidden=is_hidden)

    def _in(self, dtype: Any, total: Any) -> Any:
        if total.dtype is dtype:
            return total
        finite = self._torch.finfo(dtype).min
        return (total.clamp(min=finite) if finite > FLOOR else total).to(dtype)

    def _look(self, mask: Mask, queries: int, keys: int) -> _Verdict:
        """Waits for the device."""
        torch, total = self._torch, mask.added
        is_open = not bool(mask.is_hidden.any())
        if not is_open or not queries == keys > 1 or total.shape[-2:] != (queries, keys):
            return _Verdict(False, is_open)
        is_seen = torch.ones(queries, keys, dtype=torch.bool, device=total.device).tril()
        return _Verdict(bool(torch.where(is_seen, total == 0.0, total <= HIGHEST_FILL).all()), is_open)


def _keep(kept: dict[Any, Any], most: int, key: Any, value: Any) -> None:
    while len(kept) >= most:
        del kept[next(iter(kept))]
    kept[key] = value
