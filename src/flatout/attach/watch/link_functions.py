"""Which calls of the script's own functions compute again what an earlier call of the step has computed.

A call repeats another one if the function, its arguments and the weights of modules among them are the same, it makes
operations of autograd, and its results have the same values. They are compared where they lie in host memory; elsewhere
nothing is said. No tensor is kept: only ids, versions and a digest.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Any

from ..tracer import clock
from .link_calls import REPEAT, Call, Key, ModuleCalls, digest_of, leaves_of, version_of, weights_of

# A function that is called more often is one that a loop calls, and soon done.
_MOST_CALLS = 32  # of one function
_MOST_LEAVES = 64
_WEIGHTS = 4  # whose version stands for that of all
_LEAST_S = 2e-4
_PAUSING = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@dataclass(slots=True)
class _Open:
    call: Call
    signature: object


class FunctionCalls:
    """Those of one step. What is found is added to `calls`."""

    def __init__(self, torch: Any, calls: ModuleCalls) -> None:
        self._tensor, self._module = torch.Tensor, torch.nn.Module
        self._sequence: Callable[[], int] = torch._C._autograd._get_sequence_nr
        self._without_overrides = torch._C.DisableTorchFunction
        self._calls = calls
        self._counts: Counter[int] = Counter()
        self._open: list[_Open | None] = []
        self._known: dict[object, Call] = {}

    def enter(self, frame: FrameType, key: Key, spent_s: float, grad_s: float = 0.0) -> None:
        """A function of the script begins, which this line calls.

        `spent_s` and `grad_s`: what has passed so far in lines, and in `torch.autograd.grad`, which is backward.
        """
        code = frame.f_code
        self._counts[id(code)] += 1
        if code.co_flags & _PAUSING or self._counts[id(code)] > _MOST_CALLS or self._calls.is_quiet:
            self._open.append(None)
            return
        with self._without_overrides():
            signature = id(code), tuple(self._signature(frame))
        call = Call(key, code.co_name, True, first=self._sequence(), moments=[clock()])
        call.forward_s, call.backward_s = -spent_s, -grad_s
        self._open.append(_Open(call, signature))

    def leave(self, result: Any, spent_s: float, grad_s: float = 0.0) -> None:
        """The innermost function ends."""
        opened = self._open.pop() if self._open else None  # none: it began before the sample did
        if opened is None:
            return
        call = opened.call
        call.last = self._sequence()
        call.forward_s, call.backward_s = call.forward_s + spent_s, call.backward_s + grad_s
        call.moments.append(clock())
        if call.last <= call.first or call.seconds < _LEAST_S:
            return
        with self._without_overrides():
            results = list(islice(leaves_of(result), _MOST_LEAVES + 1))
            tensors = [leaf for leaf in results if isinstance(leaf, self._tensor)]
            if len(results) > _MOST_LEAVES or not any(leaf.requires_grad for leaf in tensors):
                return
            digest = digest_of(results, self._tensor)
        if digest is None:
            return
        known = self._known.setdefault((opened.signature, digest), call)
        if known is not call:
            call.kind, call.first_call = REPEAT, known
            self._calls.add(call)

    def forget_open(self) -> None:
        """What is under way is lost sight of."""
        self._open.clear()

    def forget_known(self) -> None:
        """Weights have changed, of whatever holds them: what follows repeats none of the calls so far."""
        self._known.clear()

    def _signature(self, frame: FrameType) -> Iterator[object]:
        code, local = frame.f_code, frame.f_locals
        more = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
        for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + more]:
            for leaf in islice(leaves_of(local.get(name)), _MOST_LEAVES):
                if isinstance(leaf, self._module) and "_modules" in leaf.__dict__:  # else it is just being made
                    yield id(leaf), tuple(version_of(weight) for weight in islice(weights_of(leaf), _WEIGHTS))
                elif leaf is None or isinstance(leaf, bool | int | float | str | self._tensor):
                    yield self._calls.token(leaf)
                else:
                    yield id(leaf)  # nobody knows whether it has changed: the results tell
