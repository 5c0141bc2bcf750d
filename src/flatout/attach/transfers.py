"""Watches calls in which the host waits for the device, and copies between the two. Only where there is a CUDA build.

A call on a CPU tensor is passed on at once: there is no device to wait for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

from .patching import Patches
from .sites import Sites
from .tracer import PENDING, Tracer
from .wire import CHECKPOINT, EVAL, FORWARD, H2D, OTHER, SYNC

_TENSOR_SYNCS = {
    "item": "item",
    "tolist": "tolist",
    "nonzero": "nonzero",
    "__bool__": "bool",
    "__int__": "int",
    "__float__": "float",
    "__index__": "int",
}
_MOVES = ("to", "cpu", "cuda")


class TransferWatch:
    """Patches of torch.Tensor's own methods. Subclasses with a `__torch_function__` see the function they know."""

    def __init__(self, torch: Any, tracer: Tracer, sites: Sites, trouble: Callable[[Exception], None]) -> None:
        self._torch = torch
        self._tracer = tracer
        self._sites = sites
        self._trouble = trouble
        self._grad = torch.is_grad_enabled
        self._compiling = torch.compiler.is_compiling
        # Shared with the sync windows: a call timed here is not reported there again.
        self.watched_call = [False]

    def install(self, patches: Patches) -> None:
        torch = self._torch
        for name, op in _TENSOR_SYNCS.items():
            patches.replace(torch.Tensor, name, lambda original, op=op: self._make_sync(original, op))
        for name in _MOVES:
            patches.replace(torch.Tensor, name, lambda original, name=name: self._make_move(original, name))
        patches.replace(torch.Tensor, "copy_", self._make_copy)
        patches.replace(torch.cuda, "synchronize", self._make_wait)
        patches.replace(torch.cuda.Stream, "synchronize", self._make_wait)
        patches.replace(torch.cuda.Event, "synchronize", self._make_wait)

    def _make_sync(self, original: Any, op: str) -> Any:
        tracer, watched = self._tracer, self.watched_call

        def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if not tensor.is_cuda or tracer.owner != get_ident() or not tracer.on or self._compiling():
                return original(tensor, *args, **kwargs)
            before = self._enter(SYNC)
            watched[0] = True
            try:
                return original(tensor, *args, **kwargs)
            finally:
                watched[0] = False
                self._left(before, op, sys._getframe(1))

        return call

    def _make_wait(self, original: Any) -> Any:
        tracer, watched = self._tracer, self.watched_call

        def synchronize(*args: Any, **kwargs: Any) -> Any:
            if tracer.owner != get_ident() or not tracer.on or watched[0] or self._compiling():
                return original(*args, **kwargs)
            before = self._enter(SYNC)
            watched[0] = True
            try:
                return original(*args, **kwargs)
            finally:
                watched[0] = False
                self._left(before, "synchronize", sys._getframe(1))

        return synchronize

    def _make_move(self, original: Any, op: str) -> Any:
        tracer, watched = self._tracer, self.watched_call

        def move(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if tracer.owner != get_ident() or not tracer.on or self._compiling():
                return original(tensor, *args, **kwargs)
            from_device = tensor.is_cuda
            before = self._enter(SYNC if from_device else H2D)
            watched[0] = True
            try:
                result = original(tensor, *args, **kwargs)
            except BaseException:
                tracer.cur = before
                raise
            finally:
                watched[0] = False
            try:
                if result.is_cuda == from_device:
                    tracer.cur = before  # nothing moved: the time stays where it was
                elif from_device:
                    self._left(before, op, sys._getframe(1))
                else:
                    non_blocking = bool(kwargs.get("non_blocking")) or (args[-1:] == (True,))
                    self._copied(before, tensor, non_blocking, sys._getframe(1))
            except Exception as error:
                self._trouble(error)
            return result

        return move

    def _make_copy(self, original: Any) -> Any:
        tracer, watched = self._tracer, self.watched_call

        def copy_(tensor: Any, source: Any, non_blocking: bool = False, *args: Any, **kwargs: Any) -> Any:
            if (
                tracer.owner != get_ident()
                or not tracer.on
                or getattr(source, "is_cuda", None) in (None, tensor.is_cuda)
                or self._compiling()
            ):
                return original(tensor, source, non_blocking, *args, **kwargs)
            before = self._enter(SYNC if source.is_cuda else H2D)
            watched[0] = True
            try:
                return original(tensor, source, non_blocking, *args, **kwargs)
            finally:
                watched[0] = False
                if source.is_cuda:
                    self._left(before, "copy_", sys._getframe(1))
                else:
                    self._copied(before, source, non_blocking, sys._getframe(1))

        return copy_

    def _enter(self, phase: int) -> int:
        """Open the phase, unless all of the time belongs to an evaluation or a checkpoint."""
        try:
            tracer = self._tracer
            if tracer.cur in (EVAL, CHECKPOINT):
                return tracer.enter(tracer.cur)
            if tracer.cur == PENDING and not self._grad():
                tracer.settle(OTHER)  # no gradients, so what went before was no training forward
            return tracer.enter(phase)
        except Exception as error:
            self._trouble(error)
            return PENDING

    def _left(self, before: int, op: str, frame: Any) -> None:
        try:
            tracer = self._tracer
            begun = tracer.last
            now = tracer.leave(before)
            tracer.syncs += 1
            self._sites.at(op, frame).add(now - begun)
        except Exception as error:
            self._trouble(error)

    def _copied(self, before: int, source: Any, non_blocking: bool, frame: Any) -> None:
        try:
            tracer = self._tracer
            begun = tracer.last
            # Without a loader, what follows the copy of a batch is the forward pass.
            now = tracer.leave(FORWARD if before == PENDING else before)
            tracer.copies += 1
            site = self._sites.at("h2d", frame)
            site.add(now - begun)
            site.bytes += source.numel() * source.element_size()
            site.pinned += source.is_pinned()
            site.non_blocking += non_blocking
        except Exception as error:
            self._trouble(error)
