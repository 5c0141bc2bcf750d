"""Follows attentions that a script writes out, through the functions of torch that it calls.

`Watched` lets every function run and only looks on: which chains are attentions, in which module, begun by which
line. `Deferred` puts off what such a line begins, until the chain ends or something else is done with it. Then either
the whole is computed in another way, or what was put off is computed as the script has it; so nothing needs to be known
for certain in advance.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Any

from ...feed.reasons import error_text
from ...records.message import Message
from .attention_call import Attention, Swap, find_ending, keep, make_attention
from .attention_chain import HOLE, Chain, Kind, Node, Plan, Reader, State
from .attention_letters import PRODUCTS, Called
from .attention_masks import MAKES_MASKS, Origins
from .roots import tensors_in

# What tells of a tensor's form, and not of its contents.
_FORM = frozenset((
    "shape", "dtype", "device", "ndim", "is_cuda", "is_cpu", "requires_grad", "layout", "itemsize", "nbytes",
    "size", "dim", "ndimension", "numel", "nelement", "element_size", "is_floating_point", "is_complex", "stride",
    "is_contiguous", "get_device", "__len__", "is_sparse", "is_quantized", "is_meta", "is_nested", "is_mps", "is_xpu",
))  # fmt: skip
_MAKE_ALIKE = frozenset((
    "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty",
    "new_tensor",
))  # fmt: skip
_TAKE_FORM = frozenset(("expand_as", "type_as", "to", "view_as", "reshape_as"))


@cache
def name_of(func: Any) -> str:
    """As torch calls the function; of an attribute its name. One that ends in `_` works in place."""
    name = str(getattr(func, "__name__", ""))
    if name == "__get__":
        name = str(getattr(func.__self__, "__name__", ""))
    return _OPERATORS.get(name, name)


_OPERATORS = {
    "__matmul__": "matmul",
    "__mul__": "mul",
    "__rmul__": "mul",
    "__imul__": "mul_",
    "__truediv__": "div",
    "__itruediv__": "div_",
    "__add__": "add",
    "__radd__": "add",
    "__iadd__": "add_",
    "__sub__": "sub",
    "__isub__": "sub_",
}


def calling_line() -> tuple[Any, int]:
    """Which instruction of the script, or of a library that it uses, called torch."""
    frame = sys._getframe(2)
    while frame.f_back is not None and _is_ours(frame.f_code, frame.f_globals.get("__name__")):
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


_OURS = ("torch", "flatout", "_flatout", "_flatout_attach")


@cache
def _is_ours(code: Any, module: object) -> bool:
    return str(module).partition(".")[0] in _OURS


Handle = Callable[[Any, Any, Any, Any], Any]


def function_mode(torch: Any, handle: Handle) -> AbstractContextManager[Any]:
    """Meanwhile functions of torch are handed to `handle(func, types, args, kwargs)`, in this thread."""
    mode: AbstractContextManager[Any] = _mode_class(torch)(handle)
    return mode


@cache
def _mode_class(torch: Any) -> Any:
    class Mode(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __init__(self, handle: Handle) -> None:
            super().__init__()
            self._handle = handle

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self._handle(func, types, args, kwargs)

    return Mode


def called_as(func: Any, args: Any, kwargs: Any) -> Called:
    name = name_of(func)
    if name == "einsum" and len(args) == 2 and isinstance(args[1], list | tuple):
        args = (args[0], *args[1])
    return Called(func, name, args, kwargs or {})


# Looking on.


@dataclass(slots=True, eq=False)
class Seen:
    """A chain that was looked at."""

    line: tuple[Any, int]
    # That were running from its first product to its last, the outermost first.
    modules: tuple[Any, ...]
    ends: int = 0
    is_used_elsewhere: bool = False

    @property
    def is_attention(self) -> bool:
        return self.ends == 1 and not self.is_used_elsewhere


@dataclass(slots=True, eq=False)
class _Followed:
    tensor: weakref.ref[Any]
    node: Node
    seen: Seen
    is_used: bool = False


class Watched:
    """Looks on. `modules`: those that are running, the outermost first; whoever calls them keeps that list."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._origins = Origins(torch)
        self._reader = Reader(torch, self._origins.number_of, {})
        self._followed: dict[int, _Followed] = {}
        # Those that came as far as a softmax.
        self.chains: list[Seen] = []
        self.modules: list[Any] = []
        # What went wrong in looking on; the script's functions are called all the same.
        self.error: Message | None = None

    def looking(self) -> AbstractContextManager[Any]:
        return function_mode(self._torch, self._handle)

    def forget(self) -> None:
        self._followed.clear()
        self._origins.forget_calls()

    def _handle(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        called = called_as(func, args, kwargs)
        if called.name in _FORM or self.error is not None:
            return called.run()
        found = self._guarded(lambda: self._read(called))
        result = called.run()
        self._guarded(lambda: self._note(called, found, result))
        return result

    def _guarded(self, look: Callable[[], Any]) -> Any:
        try:
            return look()
        except Exception as error:
            self.error = error_text(error)
            return None

    def _note(self, called: Called, found: tuple[Node, Seen] | None, result: Any) -> None:
        if called.name in MAKES_MASKS:
            self._origins.note(called, result)
        if found is not None and isinstance(result, self._torch.Tensor):
            node, seen = found
            if node.plan.dtype is None:
                self._reader.learn(node, result.dtype)
            key, followed = id(result), self._followed

            def drop(reference: weakref.ref[Any]) -> None:
                if key in followed and followed[key].tensor is reference:
                    del followed[key]

            followed[key] = _Followed(weakref.ref(result, drop), node, seen)

    def _read(self, called: Called) -> tuple[Node, Seen] | None:
        """What becomes of a chain by this call."""
        here = [(at, found) for at, arg in enumerate(called.args) if (found := self._find(arg)) is not None]
        if called.name in _MAKE_ALIKE or (called.name in _TAKE_FORM and here and here[0][0] > 0):
            return None
        if called.name in PRODUCTS:
            return self._read_product(called, here)
        at, found = here[0] if here else (0, None)
        node = self._reader.follow(found.node, called, at) if found is not None else None
        if found is None or node is found.node:
            return None
        self._use_elsewhere(called, but=found if node is not None else None)
        if node is None:
            return None
        self._use(found)
        if node.plan.kind is Kind.SOFTMAX:
            self.chains.append(found.seen)
        return node, found.seen

    def _read_product(self, called: Called, here: list[tuple[int, _Followed]]) -> tuple[Node, Seen] | None:
        weights = next(((at, found) for at, found in here if found.node.plan.key_is_first is not None), None)
        if weights is not None and self._end(called, *weights):
            self._use_elsewhere(called, but=weights[1])
            return None
        self._use_elsewhere(called)
        node = self._reader.begin(called)
        return (node, Seen(calling_line(), tuple(self.modules))) if node is not None else None

    def _find(self, tensor: Any) -> _Followed | None:
        found = self._followed.get(id(tensor))
        return found if found is not None and found.tensor() is tensor else None

    def _use(self, found: _Followed) -> None:
        found.seen.is_used_elsewhere |= found.is_used
        found.is_used = True

    def _use_elsewhere(self, called: Called, but: _Followed | None = None) -> None:
        for tensor in tensors_in(self._torch, (called.args, called.kwargs)) if self._followed else ():
            found = self._find(tensor)
            if found is not None and found is not but:
                found.seen.is_used_elsewhere = True

    def _end(self, called: Called, at: int, found: _Followed) -> bool:
        plan = found.node.plan
        value = _other_operand(called, at)
        if not self._reader.is_plain(value):
            return False
        if find_ending(plan, called, at, self._reader.state(plan.device), value) is None:
            return False
        self._use(found)
        found.seen.ends += 1
        pairs = zip(found.seen.modules, self.modules, strict=False)
        found.seen.modules = tuple(then for then, _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
        return True


def _other_operand(called: Called, at: int) -> Any:
    """Of a product of two; the last argument but for the one at `at`."""
    return called.args[-1] if at != len(called.args) - 1 else called.args[-2]


# Putting off.


@cache
def deferred_class(torch: Any) -> Any:
    """The class of tensors that are not computed yet. They have a form, and no contents."""

    class Deferred(torch.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            """Where nobody follows functions any more, or in what follows them."""
            called = called_as(func, args, kwargs)
            return tell_form(torch, called) if called.name in _FORM else run_for_real(torch, called)

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise RuntimeError(f"{func} was given a tensor of flatout's that is not computed yet")

    return Deferred


def tell_form(torch: Any, called: Called) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return called.run()


def run_for_real(torch: Any, called: Called) -> Any:
    """With what was put off computed now."""
    kind = deferred_class(torch)

    def computed(value: Any) -> Any:
        if isinstance(value, kind):
            return compute(torch, value.node)
        if isinstance(value, tuple | list) and any(isinstance(item, kind) for item in value):
            return type(value)(computed(item) for item in value)
        return value

    args = tuple(computed(arg) for arg in called.args)
    return called.func(*args, **{name: computed(arg) for name, arg in called.kwargs.items()})


def compute(torch: Any, node: Node) -> Any:
    """As the script has it; where its chain has been computed in another way, with other numbers for dropout."""
    node.chain.is_used_again |= node.chain.is_consumed
    node.memory.is_real = True
    if node.real is None:
        given = compute(torch, node.before) if node.before is not None else None
        node.real = run_again(torch, node, given)
        if node.before is not None and not node.before.is_held:
            node.before.real = None
    return node.real


def run_again(torch: Any, node: Node, given: Any, swap: Swap = keep) -> Any:
    """Its operation, on this tensor in the place of the chain's."""
    called = node.called
    args = tuple(given if arg is HOLE else swap(arg) for arg in called.args)
    with in_state(torch, node.plan.state, node.plan.device):
        return called.func(*args, **{name: swap(arg) for name, arg in called.kwargs.items()})


def in_state(torch: Any, state: State, device: Any) -> AbstractContextManager[Any]:
    kind = device.type
    now = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    if now == state.autocast and torch.is_grad_enabled() == state.grad:
        return nullcontext()
    stack = ExitStack()
    stack.enter_context(torch.set_grad_enabled(state.grad))
    stack.enter_context(torch.autocast(kind, dtype=state.autocast, enabled=state.autocast is not None))
    return stack


# What is to be done with a function: where nothing that was put off is in its arguments, and where something is.
_CALL, _MULTIPLY, _MAKE_MASK, _LAY_OUT = range(4)
_TELL_FORM, _READ = range(2)


class Deferring:
    """Calls in which chains that begin at known lines are put off until they end.

    `attend` gives the result of a whole attention, or None where it is to be computed as the script has it.
    """

    def __init__(
        self, torch: Any, lines: set[tuple[Any, int]], origins: Origins, attend: Callable[[Attention], Any]
    ) -> None:
        self._torch = torch
        self._lines = lines
        self._origins = origins
        self._attend = attend
        self._reader = Reader(torch, origins.number_of, {})
        self._kind = deferred_class(torch)
        self._no_subclass = torch._C.DisableTorchFunctionSubclass
        self._ways: dict[Any, tuple[int, int, str]] = {}
        self._made: list[weakref.ref[Any]] = []
        self._chains: list[Chain] = []
        # What the kernel gave, in its own layout, and where.
        self.outs: list[tuple[Any, Attention]] = []
        # What went wrong in here; the script's functions are called all the same.
        self.error: Message | None = None

    def following(self) -> AbstractContextManager[Any]:
        """During one call."""
        self._made, self._chains, self.outs, self.error = [], [], [], None
        return function_mode(self._torch, self._handle)

    @property
    def is_anything_kept(self) -> bool:
        """After the call: whether somebody holds scores or weights, computed or not."""
        return any(reference() is not None for reference in self._made)

    @property
    def is_anything_used_again(self) -> bool:
        return any(chain.is_used_again for chain in self._chains)

    def computed(self, value: Any) -> Any:
        """What was put off, now."""
        return compute(self._torch, value.node) if type(value) is self._kind else value

    def _handle(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        way, use, name = self._ways.get(func) or self._find_way(func)
        if self._kind in types:
            if use == _TELL_FORM:
                with self._no_subclass():
                    return func(*args, **kwargs) if kwargs else func(*args)
            return self._go_on(Called(func, name, args, kwargs or {}))
        if way == _MULTIPLY:
            return self._multiply(called_as(func, args, kwargs))
        if way == _LAY_OUT and self.outs:
            return self._lay_out(Called(func, name, args, kwargs or {}))
        result = func(*args, **kwargs) if kwargs else func(*args)
        if way == _MAKE_MASK and not getattr(result, "requires_grad", True):
            self._guarded(lambda: self._origins.note(Called(func, name, args, kwargs or {}), result))
        return result

    def _guarded(self, call: Callable[[], Any]) -> Any:
        """None if something of ours fails."""
        try:
            return call()
        except self._torch.OutOfMemoryError:
            raise
        except Exception as error:
            self.error = error_text(error)
            return None

    def _find_way(self, func: Any) -> tuple[int, int, str]:
        name = name_of(func)
        way = _MULTIPLY if name in PRODUCTS else _MAKE_MASK if name in MAKES_MASKS else _CALL
        way = _LAY_OUT if name in ("view", "as_strided") else way
        found = self._ways[func] = (way, _TELL_FORM if name in _FORM else _READ, name)
        return found

    def _multiply(self, called: Called) -> Any:
        is_known = calling_line() in self._lines
        deferred = self._guarded(lambda: self._begin(called)) if is_known else None
        return deferred if deferred is not None else called.run()

    def _begin(self, called: Called) -> Any:
        node = self._reader.begin(called)
        if node is None:
            return None
        self._chains.append(node.chain)
        return self._put_off(node)

    def _lay_out(self, called: Called) -> Any:
        """Of what the kernel gave no view may be possible where there is one of the script's own product."""
        try:
            if called.name == "view":
                return called.run()
        except RuntimeError:
            if self.find_out(called.args[0]) is None:
                raise
        tensor = called.args[0]
        tensor = tensor if self.find_out(tensor) is None else tensor.contiguous()
        return called.given((tensor, *called.args[1:])).run()

    def find_out(self, tensor: Any) -> tuple[Any, Attention] | None:
        """What the kernel gave, of which this is a view."""
        if not self._reader.is_plain(tensor):
            return None
        place = tensor.untyped_storage().data_ptr()
        return next((out for out in self.outs if out[0].untyped_storage().data_ptr() == place), None)

    def _go_on(self, called: Called) -> Any:
        kind, args = self._kind, called.args
        is_single = type(args[0]) is kind and (len(args) == 1 or kind not in [type(arg) for arg in args[1:]])
        if is_single and called.name not in PRODUCTS:
            # As it is nearly always.
            node: Node = args[0].node
            is_real = node.memory.is_real or node.chain.is_consumed
            result = None if is_real else self._guarded(lambda: self._follow(node, called, 0))
            if result is not None:
                return result
        if called.name == "einsum":
            called = called_as(called.func, args, called.kwargs)
        met = [at for at, arg in enumerate(called.args) if type(arg) is kind]
        if called.name in _MAKE_ALIKE or (called.name in _TAKE_FORM and met and met[0] > 0):
            called = self._with_stand_ins(called)
            result = called.run()
            self._guarded(lambda: self._origins.note(called, result))
            return result
        result = self._guarded(lambda: self._read(called, met)) if met else None
        return result if result is not None else run_for_real(self._torch, called)

    def _with_stand_ins(self, called: Called) -> Called:
        """A tensor of the same form, with one number at every place."""
        torch = self._torch

        def stand_in(value: Any) -> Any:
            if type(value) is not self._kind:
                return value
            plan: Plan = value.node.plan
            return torch.zeros((), dtype=plan.dtype, device=plan.device).expand(plan.shape)

        kwargs = {name: stand_in(value) for name, value in called.kwargs.items()}
        return Called(called.func, called.name, tuple(stand_in(arg) for arg in called.args), kwargs)

    def _read(self, called: Called, met: list[int]) -> Any:
        """None where this has no place in a chain."""
        nodes: dict[int, Node] = {at: called.args[at].node for at in met}
        at = next((at for at, node in nodes.items() if node.plan.key_is_first is not None), met[0])
        node = nodes[at]
        is_last = called.name in PRODUCTS
        if is_last and node.plan.key_is_first is None:
            args = tuple(compute(self._torch, nodes[at]) if at in nodes else arg for at, arg in enumerate(called.args))
            return self._multiply(called.given(args))
        if node.memory.is_real or node.chain.is_consumed:
            return None
        if len(met) > 1:
            others = {other: compute(self._torch, nodes[other]) for other in met if other != at}
            called = called.given(tuple(others.get(n, arg) for n, arg in enumerate(called.args)))
        return self._end(node, called, at) if is_last else self._follow(node, called, at)

    def _follow(self, node: Node, called: Called, at: int) -> Any:
        deferred = called.args[at]
        after = self._reader.follow(node, called, at)
        if after is None or after is node:
            return deferred if after is node else None
        if after.plan.is_in_place:
            others = [reference() for reference in node.memory.held]
            if any(other is not None and other is not deferred for other in others):
                return None  # views show it as well
            after.stands_for, node.stands_for = node.stands_for, None
            deferred.node = after
            return deferred
        return self._put_off(after)

    def _put_off(self, node: Node) -> Any:
        plan = node.plan
        if plan.dtype is None:
            # For the first time.
            self._reader.learn(node, compute(self._torch, node).dtype)
            node.memory.is_real = False
        deferred = self._torch.Tensor._make_wrapper_subclass(
            self._kind, plan.shape, dtype=plan.dtype, device=plan.device, requires_grad=plan.requires_grad
        )
        deferred.node = node
        node.stands_for = weakref.ref(deferred)
        node.memory.held.append(node.stands_for)
        self._made.append(node.stands_for)
        return deferred

    def _end(self, node: Node, called: Called, at: int) -> Any:
        plan, value, reader = node.plan, _other_operand(called, at), self._reader
        form, state = reader.form_of(value), reader.state(plan.device)
        if form is None or called.kwargs:
            return None
        equation = called.args[0] if called.name == "einsum" else None
        key = (called.name, at, form, state, equation)
        ending = plan.ends.get(key, self)
        if ending is self:
            ending = plan.ends[key] = find_ending(plan, called, at, state, value)
        if ending is None:
            return None
        attention = make_attention(ending, node, called)
        if not attention.is_unchanged:
            return None
        if ending.dtype is None:
            of = (called.name, plan.dtype, value.dtype, plan.device.type, state)
            ending.dtype = reader.dtypes.get(of)
            if ending.dtype is None:
                result = run_for_real(self._torch, called)
                ending.dtype = reader.dtypes[of] = result.dtype
                return result
        result = self._attend(attention)
        node.chain.is_consumed = result is not None
        return result
