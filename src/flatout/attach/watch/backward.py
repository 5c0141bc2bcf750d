"""Watches backward passes, and the activations they compute again (torch.utils.checkpoint)."""

from __future__ import annotations

import inspect
from threading import get_ident
from typing import Any

from ..context import Watcher
from ..imports import after_import
from ..patching import guard
from ..tracer import BACKWARD_BEGINS, BACKWARD_ENDS, ENTER_GRAD, LEAVE, Window, clock

# Of torch.autograd.backward; another signature means a torch we do not know, and it is left alone.
_PARAMETERS = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")


class BackwardWatch(Watcher):
    """Replaces torch.autograd.backward, which Tensor.backward calls too, and torch.autograd.grad."""

    def install(self) -> None:
        autograd = self._torch.autograd
        if tuple(inspect.signature(autograd.backward).parameters) == _PARAMETERS:
            self._patches.replace(autograd, "backward", self._make_backward)
        self._patches.replace(autograd, "grad", self._make_grad)

    def _make_backward(self, original: Any) -> Any:
        tracer, observer, trouble = self._tracer, self._context.backward_observer, self._trouble
        log, at, look = tracer.log, tracer.at, self._look

        # The parameters spelt out: packing and unpacking them would cost more than the rest of this.
        def backward(  # noqa: PLR0913
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
            window = None
            try:
                if tracer.want_look:
                    window = look(tensors, create_graph, inputs is not None)
                log(BACKWARD_BEGINS)
                at(clock())
                if observer is not None:
                    observer.backward_begins()
            except Exception as error:
                trouble(error)
            try:
                return original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
            finally:
                log(BACKWARD_ENDS)
                at(clock())
                if observer is not None:
                    guard(observer.backward_ends, trouble)
                if window is not None:
                    window.backward_ends()

        return backward

    def _look(self, tensors: Any, create_graph: bool, is_partial: bool) -> Window | None:
        """What is done in few steps only. Returns the window that is open, to be told of the end."""
        tracer = self._tracer
        if tracer.want_graph:
            tracer.want_graph = False
            self._context.graph.look(tensors)
        tracer.want_look = tracer.window is not None
        if tracer.window is not None:
            tracer.window.backward_begins(tensors, create_graph, is_partial)
        return tracer.window

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


class RecomputeWatch(Watcher):
    """Of the training thread. What a call takes in forward is about what it takes once more in backward."""

    _within = False
    _calls = 0
    _seconds = 0.0

    def install(self) -> None:
        after_import("torch.utils.checkpoint", lambda module: self._patches.replace(module, "checkpoint", self._make))

    def add_state(self, state: dict[str, object], steps: int) -> None:
        if self._calls:
            state["recomputed"] = {"calls": self._calls, "seconds": round(self._seconds, 4), "steps": steps}

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
