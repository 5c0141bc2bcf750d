"""An attention that a script writes out: a chain of operations from one product of tensors to another.

The first product gives scores. They are scaled, masked, cast and reshaped, and a softmax makes weights of them, which
the second product takes, perhaps after dropout. What is the same of an operation in every call of its form is its plan,
which is made once; the operation in one call is a node.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .attention_letters import Called, Head, Product, Shape, head_of, product_of, sizes_of

# What is filled in so low is nothing after the softmax, wherever a row has something else.
HIGHEST_FILL = -1e4
# Plans that are kept; with lengths that keep changing they are made anew.
_MOST_PLANS = 5000


class Kind(Enum):
    PRODUCT = "product"
    SCALE = "scale"
    ADD = "add"
    FILL = "fill"
    SAME = "same"  # casts and copies
    SHAPE = "shape"
    SOFTMAX = "softmax"
    DROPOUT = "dropout"


class Hole:
    """Stands for the chain's tensor in the arguments of a call."""


HOLE = Hole()


@dataclass(frozen=True, slots=True)
class State:
    """What rules how an operation is done: the dtype of autocast, if that is on, and whether gradients are wanted."""

    autocast: Any
    grad: bool


# What operations are given beside the chain's tensor.


@dataclass(frozen=True, slots=True)
class Scores:
    """A first product; `added` where `baddbmm` adds something."""

    product: Product
    head: Head
    is_added: bool
    alpha: float = 1.0
    beta: float = 1.0


@dataclass(frozen=True, slots=True)
class Factor:
    """A number, or a tensor that divides or multiplies."""

    number: float = 1.0
    divides: bool = False


@dataclass(frozen=True, slots=True)
class Term:
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Fill:
    value: float
    # Filled where the mask is not set.
    is_inverted: bool = False


@dataclass(slots=True, eq=False)
class Plan:
    """`axes` and `batch`: what each dimension stands for, and how large those of the batch are."""

    kind: Kind
    before: Plan | None
    given: Any
    # Where among the arguments its tensors are, and of which shape, dtype and need of a gradient.
    tensors_at: tuple[int, ...]
    forms: tuple[tuple[Shape, Any, bool], ...]
    shape: Shape
    # None until it is known.
    dtype: Any
    device: Any
    state: State
    axes: tuple[int, ...]
    batch: Shape
    requires_grad: bool
    # Whether the softmax goes over the first operand's own dimension; None before it.
    key_is_first: bool | None
    shares_memory: bool
    is_in_place: bool
    after: dict[Any, Any] = field(default_factory=dict)
    # How it may end, by the last product.
    ends: dict[Any, Any] = field(default_factory=dict)

    @property
    def key(self) -> int:
        """The axis over the keys."""
        return len(self.batch) + (0 if self.key_is_first else 1)

    def path(self) -> list[Plan]:
        """From the first product on."""
        plans: list[Plan] = [self]
        while plans[-1].before is not None:
            plans.append(plans[-1].before)
        return plans[::-1]


@dataclass(slots=True, eq=False)
class Chain:
    """What the nodes of a chain share."""

    # Its result was computed in another way; and something of it was computed as well, afterwards.
    is_consumed: bool = False
    is_used_again: bool = False


@dataclass(slots=True, eq=False)
class Memory:
    """What an operation in place changes: its own tensor, and views of it."""

    # The tensors that the script has of it.
    held: list[weakref.ref[Any]] = field(default_factory=list)
    # Its contents were asked for; nothing is put off any more.
    is_real: bool = False


@dataclass(slots=True, eq=False)
class Node:
    plan: Plan
    before: Node | None
    # With a hole for the chain's tensor.
    called: Called
    tensors: tuple[Any, ...]
    versions: tuple[int, ...]
    chain: Chain
    memory: Memory
    # Once it is computed; and the tensor that the script has in its place, if that is still there.
    real: Any = None
    stands_for: weakref.ref[Any] | None = None

    @property
    def is_held(self) -> bool:
        return self.stands_for is not None and self.stands_for() is not None

    def path(self) -> list[Node]:
        """From the first product on."""
        nodes: list[Node] = [self]
        while nodes[-1].before is not None:
            nodes.append(nodes[-1].before)
        return nodes[::-1]


# What operations do with the tensor of a chain.

_CASTS = {"float": "float32", "half": "float16", "bfloat16": "bfloat16", "double": "float64"}
_SCALES = {"mul": False, "multiply": False, "div": True, "divide": True, "true_divide": True}
_ADDS = {"add": 1.0, "sub": -1.0, "subtract": -1.0}
_VIEWS = ("view", "reshape", "view_as", "reshape_as", "unsqueeze", "squeeze", "flatten", "unflatten")
_PERMUTES = ("transpose", "swapaxes", "swapdims", "permute", "mT", "T", "t")
_OF_WEIGHTS = (Kind.SAME, Kind.SHAPE, Kind.DROPOUT)
_SHARES_MEMORY = (Kind.SAME, Kind.SHAPE)
# Nothing is done, as by a cast to the dtype that it has.
_NOTHING = object()


@dataclass(slots=True)
class _Read:
    """What an operation does; what is None stays as it was before."""

    kind: Kind
    given: Any = None
    dtype: Any = None
    shape: Shape | None = None
    axes: tuple[int, ...] | None = None
    batch: Shape | None = None
    tensors_at: tuple[int, ...] = ()
    is_dtype_unknown: bool = False
    key_is_first: bool | None = None


class Reader:
    """Reads one operation after the other. `number_of`: the value of a tensor that holds one known number, or None.

    Which dtype a product or a softmax gives depends on autocast, and is learned: `dtypes` may be shared.
    """

    def __init__(self, torch: Any, number_of: Callable[[Any], float | None], dtypes: dict[Any, Any]) -> None:
        self._torch = torch
        self._number_of = number_of
        self.dtypes = dtypes
        self._plain_types = (torch.Tensor, torch.nn.Parameter)
        self._fit = (torch.float32, torch.bfloat16, torch.float16)
        self._heads: dict[Any, Plan | None] = {}
        self._states: dict[Any, State] = {}
        self._plans = 0
        self._readers: dict[str, Callable[[Plan, Called, int], Any]] = {
            **dict.fromkeys(_SCALES, self._scale),
            **dict.fromkeys(_ADDS, self._add),
            "masked_fill": self._masked_fill,
            "where": self._where,
            **dict.fromkeys((*_CASTS, "to", "type", "type_as", "contiguous", "clone"), self._cast),
            **dict.fromkeys(_VIEWS, self._view),
            **dict.fromkeys(_PERMUTES, self._permute),
            "softmax": self._softmax,
            "dropout": self._dropout,
        }

    def state(self, device: Any) -> State:
        torch, kind = self._torch, device.type
        key = (torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None, torch.is_grad_enabled())
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = State(*key)
        return state

    def is_plain(self, tensor: Any) -> bool:
        is_tensor = type(tensor) in self._plain_types
        return is_tensor and tensor.layout is self._torch.strided and not tensor.is_inference()

    def form_of(self, value: Any) -> Any:
        """Equal for arguments that make no difference; None for what cannot be compared."""
        if isinstance(value, self._torch.Tensor):
            if not self.is_plain(value):
                return None
            return (value.shape, value.dtype, value.requires_grad, value.device, self._number_of(value))
        if isinstance(value, int | float):
            return (type(value), value)
        if isinstance(value, list):
            value = tuple(value)
        try:
            hash(value)
        except TypeError:
            return None
        return (value,)

    def begin(self, called: Called) -> Node | None:
        """A product as the first of a chain."""
        forms = [self.form_of(arg) for arg in called.args]
        if None in forms or any(type(value) not in (int, float) for value in called.kwargs.values()):
            return None
        device = called.args[-1].device if isinstance(called.args[-1], self._torch.Tensor) else None
        if device is None:
            return None
        key = (called.name, *forms, *called.kwargs.items(), self.state(device))
        plan = self._heads.get(key, self)
        if plan is self:
            self._count()
            plan = self._heads[key] = self._plan_head(called)
        if not isinstance(plan, Plan):
            return None
        tensors = tuple([called.args[at] for at in plan.tensors_at])
        versions = tuple([tensor._version for tensor in tensors])
        return Node(plan, None, called, tensors, versions, Chain(), Memory())

    def follow(self, node: Node, called: Called, at: int) -> Node | None:
        """The node after this one; itself where nothing is done, None for what has no place in a chain.

        `at` tells where in the arguments the chain's tensor is.
        """
        before, args = node.plan, (*called.args[:at], HOLE, *called.args[at + 1 :])
        forms = [called.func, self.state(before.device)]
        for value in (*args, *called.kwargs.values()) if called.kwargs else args:
            form = value if value is HOLE else self.form_of(value)
            if form is None:
                return None
            forms.append(form)
        key = (*forms, *called.kwargs)
        plan = before.after.get(key, self)
        if plan is self:
            self._count()
            plan = before.after[key] = self._plan(before, called, at)
        if plan is _NOTHING:
            return node
        if plan is None:
            return None
        tensors: tuple[Any, ...] = ()
        versions: tuple[int, ...] = ()
        if plan.tensors_at:
            tensors = tuple([args[n] for n in plan.tensors_at])
            versions = tuple([tensor._version for tensor in tensors])
        memory = node.memory if plan.shares_memory else Memory()
        return Node(plan, node, called.given(args), tensors, versions, node.chain, memory)

    def _count(self) -> None:
        self._plans += 1
        if self._plans > _MOST_PLANS:
            self._plans = 0
            self._heads.clear()

    def _plan_head(self, called: Called) -> Plan | None:
        args, kwargs = called.args, called.kwargs
        found = product_of(called)
        head = head_of(found[0]) if found is not None else None
        if found is None or head is None:
            return None
        product, at = found
        alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
        is_added = called.name == "baddbmm" and beta != 0
        tensors_at = (at, at + 1, 0) if is_added else (at, at + 1)
        first, second, *added = (args[n] for n in tensors_at)
        if not all(self._is_fit(tensor, first.device) for tensor in (first, second, *added)) or alpha <= 0:
            return None
        sizes = sizes_of(product, first.shape, second.shape)
        if sizes is None:
            return None
        shape = tuple(sizes[letter] for letter in product.out)
        if any(tuple(tensor.shape) != shape for tensor in added):
            return None
        state = self.state(first.device)
        return Plan(
            Kind.PRODUCT,
            None,
            Scores(product, head, is_added, float(alpha), float(beta)),
            tensors_at,
            _forms([first, second, *added]),
            shape,
            self.dtypes.get((called.name, first.dtype, second.dtype, first.device.type, state)),
            first.device,
            state,
            head.axes,
            tuple(sizes[letter] for letter in head.batch),
            state.grad and any(tensor.requires_grad for tensor in (first, second, *added)),
            None,
            False,
            False,
        )

    def learn(self, node: Node, dtype: Any) -> None:
        """What it gave."""
        plan = node.plan
        plan.dtype = dtype
        if plan.before is None:
            first, second = node.tensors[:2]
            key: Any = (node.called.name, first.dtype, second.dtype, plan.device.type, plan.state)
        else:
            key = (node.called.name, plan.before.dtype, plan.device.type, plan.state)
        self.dtypes[key] = dtype

    def _plan(self, before: Plan, called: Called, at: int) -> Any:
        is_in_place = called.name.endswith("_")
        if is_in_place:
            called = Called(called.func, called.name[:-1], called.args, called.kwargs)
        reader = self._readers.get(called.name)
        read = reader(before, called, at) if reader is not None else None
        if not isinstance(read, _Read):
            return read
        if before.key_is_first is not None and read.kind not in _OF_WEIGHTS:
            return None
        tensors = [called.args[n] for n in read.tensors_at]
        if not all(self._is_term(tensor, before) for tensor in tensors):
            return None
        state = self.state(before.device)
        dtype = before.dtype if read.dtype is None or is_in_place else read.dtype
        if read.is_dtype_unknown:
            dtype = self.dtypes.get((called.name, before.dtype, before.device.type, state))
        return Plan(
            read.kind,
            before,
            read.given,
            read.tensors_at,
            _forms(tensors),
            before.shape if read.shape is None else read.shape,
            dtype,
            before.device,
            state,
            before.axes if read.axes is None else read.axes,
            before.batch if read.batch is None else read.batch,
            state.grad and (before.requires_grad or any(tensor.requires_grad for tensor in tensors)),
            before.key_is_first if read.key_is_first is None else read.key_is_first,
            is_in_place or read.kind in _SHARES_MEMORY,
            is_in_place,
        )

    def _is_fit(self, tensor: Any, device: Any) -> bool:
        return self.is_plain(tensor) and tensor.dtype in self._fit and tensor.device == device and tensor.numel() > 0

    def _is_term(self, tensor: Any, before: Plan) -> bool:
        """Whether it is broadcast to scores of this form, and not the other way round."""
        if tensor.dim() > len(before.shape):
            return False
        here = tensor.device == before.device or tensor.dim() == 0
        pairs = zip(reversed(tensor.shape), reversed(before.shape), strict=False)
        return here and all(size in (1, of) for size, of in pairs)

    def _number(self, value: Any) -> float | None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        return self._number_of(value) if isinstance(value, self._torch.Tensor) else None

    def _promoted(self, before: Plan, tensor: Any) -> Any:
        """A tensor of one element does not change the dtype of floating point numbers."""
        is_open = tensor.dim() and before.dtype is not None
        return self._torch.promote_types(before.dtype, tensor.dtype) if is_open else before.dtype

    def _scale(self, before: Plan, called: Called, at: int) -> _Read | None:
        divides = _SCALES[called.name]
        if len(called.args) != 2 or called.kwargs or (divides and at != 0):
            return None
        other = called.args[1 - at]
        number = None if isinstance(other, self._torch.Tensor) and other.dim() else self._number(other)
        if number is not None:
            factor = 1.0 / number if divides and number else number
            return _Read(Kind.SCALE, Factor(factor)) if math.isfinite(factor) and factor > 0 else None
        if not isinstance(other, self._torch.Tensor) or not other.is_floating_point():
            return None
        return _Read(Kind.SCALE, Factor(1.0, divides), self._promoted(before, other), tensors_at=(1 - at,))

    def _add(self, before: Plan, called: Called, at: int) -> _Read | None:
        sign = _ADDS[called.name]
        if len(called.args) != 2 or not called.kwargs.keys() <= {"alpha"} or (sign < 0 and at != 0):
            return None
        other, alpha = called.args[1 - at], called.kwargs.get("alpha", 1)
        if not isinstance(other, self._torch.Tensor) or not other.dim() or (at != 0 and alpha != 1):
            return None
        return _Read(Kind.ADD, Term(sign * float(alpha)), self._promoted(before, other), tensors_at=(1 - at,))

    def _masked_fill(self, before: Plan, called: Called, at: int) -> _Read | None:
        if len(called.args) != 3 or at != 0:
            return None
        return self._filled(called, 1, called.args[2], is_inverted=False)

    def _where(self, before: Plan, called: Called, at: int) -> _Read | None:
        """`torch.where(condition, a, b)` and `a.where(condition, b)`."""
        args, tensors = called.args, self._torch.Tensor
        if len(args) != 3 or called.kwargs:
            return None
        first = 1 if at != 0 and isinstance(args[0], tensors) and args[0].dtype is self._torch.bool else 0
        if at == 1 - first:
            return None
        other = args[2 if at != 2 else first]
        read = self._filled(called, 1 - first, other, is_inverted=at != 2)
        if read is not None and isinstance(other, tensors):
            read.dtype = self._promoted(before, other)
        return read

    def _filled(self, called: Called, mask_at: int, value: Any, is_inverted: bool) -> _Read | None:
        mask, number = called.args[mask_at], self._number(value)
        if not isinstance(mask, self._torch.Tensor) or mask.dtype is not self._torch.bool:
            return None
        if number is None or not number <= HIGHEST_FILL:
            return None
        return _Read(Kind.FILL, Fill(number, is_inverted), tensors_at=(mask_at,))

    def _cast(self, before: Plan, called: Called, at: int) -> Any:
        torch = self._torch
        if at != 0:
            return None
        if called.name in ("contiguous", "clone"):
            return _Read(Kind.SAME)
        given = [*called.args[1:], *called.kwargs.values()]
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        dtypes = [value for value in given if isinstance(value, torch.dtype)] + [tensor.dtype for tensor in tensors]
        if called.name in _CASTS:
            dtypes = [getattr(torch, _CASTS[called.name])]
        if len(dtypes) != 1 or any(tensor.device != before.device for tensor in tensors):
            return None
        # Another device, or a copy in any case.
        if any(isinstance(value, str | torch.device) or value is True for value in given):
            return None
        if not dtypes[0].is_floating_point:
            return None
        return _NOTHING if dtypes[0] == before.dtype else _Read(Kind.SAME, dtype=dtypes[0])

    def _view(self, before: Plan, called: Called, at: int) -> _Read | None:
        """Only the dimensions of the batch may be split and joined."""
        torch = self._torch
        given = (*called.args[1:], *called.kwargs.values())
        if at != 0 or any(isinstance(value, torch.dtype) for value in given):
            return None
        if called.name in ("view_as", "reshape_as"):
            shape = tuple(given[0].shape)
        else:
            like = torch.empty(before.shape, device="meta")
            shape = tuple(called.func(like, *called.args[1:], **called.kwargs).shape)
        n, batches = len(before.batch), len(shape) - 2
        if batches < 0 or before.axes[:-2] != tuple(range(n)) or shape[-2:] != before.shape[-2:]:
            return None
        axes = (*range(batches), *(axis - n + batches for axis in before.axes[-2:]))
        return _Read(Kind.SHAPE, shape=shape, axes=axes, batch=shape[:-2])

    def _permute(self, before: Plan, called: Called, at: int) -> _Read | None:
        dims = list(range(len(before.shape)))
        given = (*called.args[1:], *called.kwargs.values())
        if at != 0 or (called.name in ("T", "t") and len(dims) != 2):
            return None
        if called.name in ("mT", "T", "t"):
            given = (-2, -1)
        if called.name == "permute":
            given = tuple(given[0]) if len(given) == 1 and not isinstance(given[0], int) else given
            dims = [dims[n] for n in given]
        else:
            dims[given[0]], dims[given[1]] = dims[given[1]], dims[given[0]]
        shape = tuple(before.shape[n] for n in dims)
        return _Read(Kind.SHAPE, shape=shape, axes=tuple(before.axes[n] for n in dims))

    def _softmax(self, before: Plan, called: Called, at: int) -> _Read | None:
        dim = called.argument(1, "dim")
        given = (*called.args[2:], *called.kwargs.values())
        dtypes = [value for value in given if isinstance(value, self._torch.dtype)]
        if at != 0 or not isinstance(dim, int):
            return None
        axis = before.axes[dim] - len(before.batch)
        if axis < 0:
            return None
        dtype = dtypes[0] if dtypes else None
        return _Read(Kind.SOFTMAX, dtype=dtype, key_is_first=axis == 0, is_dtype_unknown=dtype is None)

    def _dropout(self, before: Plan, called: Called, at: int) -> Any:
        p = called.argument(1, "p", 0.5)
        trains = called.argument(2, "training", called.kwargs.get("train", True))
        if at != 0 or called.argument(3, "inplace", False):
            return None
        if before.key_is_first is None or not isinstance(p, int | float) or not 0.0 <= p < 1.0:
            return None
        return _Read(Kind.DROPOUT, float(p)) if trains and p else _NOTHING


def _forms(tensors: list[Any]) -> tuple[tuple[Shape, Any, bool], ...]:
    return tuple((tuple(tensor.shape), tensor.dtype, tensor.requires_grad) for tensor in tensors)
