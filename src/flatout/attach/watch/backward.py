"""Watches backward passes, and the activations they compute again (torch.utils.checkpoint)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol

from ..graph import GraphInspector
from ..patching import Patches, guarded
from ..tracer import BACKWARD_BEGINS, BACKWARD_ENDS, ENTER_GRAD, LEAVE, Tracer, clock

# Of torch.autograd.backward; another signature means a torch we do not know, and it is left alone.
_PARAMETERS = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")


class BackwardObserver(Protocol):
    """Who wants to know where a backward pass begins and ends: the device's clock, or the stages with it."""

    def backward_begins(self) -> None: ...
    def backward_ends(self) -> None: ...


class BackwardWatch:
    """Replaces torch.autograd.backward, which Tensor.backward calls too, and torch.autograd.grad."""

    def __init__(
        self,
        torch: Any,
        tracer: Tracer,
        device: BackwardObserver | None,
        graph: GraphInspector,
        trouble: Callable[[Exception], None],
    ) -> None:
        self._compiling = torch.compiler.is_dynamo_compiling
        self._tracer = tracer
        self._device = device
        self._graph = graph
        self._trouble = trouble

    def install(self, module: Any, patches: Patches) -> None:
        """`module` is torch.autograd."""
        if tuple(inspect.signature(module.backward).parameters) == _PARAMETERS:
            patches.replace(module, "backward", self._make_backward)
        patches.replace(module, "grad", self._make_grad)

    def _make_backward(self, original: Any) -> Any:
        tracer, device, trouble = self._tracer, self._device, self._trouble
        log, at = tracer.log, tracer.at

        # The parameters spelt out: packing and unpacking them would cost more than the rest of this.
        def backward(
            tensors: Any,
            grad_tensors: Any = None,
            retain_graph: Any = None,
            create_graph: bool = False,
            grad_variables: Any = None,
            inputs: Any = None,
        ) -> Any:
            me = get_ident()
            if tracer.looking != me and (tracer.owner == me or not tracer.claim_training()):
                return original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
            try:
                if tracer.want_look:
                    tracer.want_look = False
                    self._graph.look(tensors)
                log(BACKWARD_BEGINS)
                at(clock())
                if device is not None:
                    device.backward_begins()
            except Exception as error:
                trouble(error)
            try:
                return original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
            finally:
                log(BACKWARD_ENDS)
                at(clock())
                if device is not None:
                    guarded(device.backward_ends, trouble)

        return backward

    def _make_grad(self, original: Any) -> Any:
        tracer, compiling, log, at = self._tracer, self._compiling, self._tracer.log, self._tracer.at

        def grad(*args: Any, **kwargs: Any) -> Any:
            if compiling() or tracer.owner != get_ident():
                return original(*args, **kwargs)
            log(ENTER_GRAD)
            at(clock())
            try:
                return original(*args, **kwargs)
            finally:
                log(LEAVE)
                at(clock())

        return grad


class RecomputeWatch:
    """Of the training thread. What a call takes in forward is about what it takes once more in backward."""

    def __init__(self, torch: Any, tracer: Tracer) -> None:
        self._torch = torch
        self._tracer = tracer
        self._within = False
        self._calls = 0
        self._seconds = 0.0

    def install(self, module: Any, patches: Patches) -> None:
        patches.replace(module, "checkpoint", self._make)

    def so_far(self, steps: int) -> dict[str, float] | None:
        """Calls and seconds in so many steps; None without any, as in most scripts."""
        if not self._calls:
            return None
        return {"calls": self._calls, "seconds": round(self._seconds, 4), "steps": steps}

    def _make(self, original: Any) -> Any:
        tracer, has_graph = self._tracer, self._torch.is_grad_enabled

        def checkpoint(*args: Any, **kwargs: Any) -> Any:
            # One within another is part of that one; without a graph nothing is computed again.
            if self._within or tracer.owner != get_ident() or not has_graph():
                return original(*args, **kwargs)
            self._within = True
            begun = clock()
            try:
                return original(*args, **kwargs)
            finally:
                self._within = False
                self._calls += 1
                self._seconds += clock() - begun

        return checkpoint
