"""Watches calls in which the host waits for the device, and copies between the two. Only where there is a CUDA build.

A call on a CPU tensor is passed on at once: there is no device to wait for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any

from .bursts import LARGE_BYTES, Bursts
from .narrow import Narrowness
from .patching import Patches
from .sites import Site, Sites
from .tracer import ENTER_SYNC, ENTER_SYNC_NO_GRAD, LEAVE, Tracer, clock
from .wire import H2D, SYNC

_TENSOR_SYNCS = {
    "item": "item",
    "tolist": "tolist",
    "nonzero": "nonzero",
    "__bool__": "bool",
    "__int__": "int",
    "__float__": "float",
    "__index__": "int",
}
# Of the copies made at one line, how many are asked whether their source is pinned.
_ALWAYS_ASKED, _ASKED_ONE_IN = 32, 7
_MOVES = ("to", "cpu", "cuda")


class TransferWatch:
    """Patches of torch.Tensor's own methods."""

    def __init__(self, torch: Any, tracer: Tracer, sites: Sites, trouble: Callable[[Exception], None]) -> None:
        self._torch = torch
        self._tracer = tracer
        self._sites = sites
        self._trouble = trouble
        self._grad = torch.is_grad_enabled
        # A subclass or mode that overrides functions is asked first, as torch itself would do, and calls back.
        self._overridden = torch.overrides.has_torch_function_unary
        self._compiling = torch.compiler.is_dynamo_compiling
        self._bursts = Bursts(tracer, sites)
        # Shared with the sync windows: a call timed here is not reported there again.
        self.watched_call = [False]

    def install(self, patches: Patches) -> None:
        torch = self._torch
        for name, op in _TENSOR_SYNCS.items():
            patches.replace(torch.Tensor, name, partial(self._make_sync, op))
        for name in _MOVES:
            patches.replace(torch.Tensor, name, partial(self._make_move, name))
        patches.replace(torch.Tensor, "copy_", self._make_copy)
        patches.replace(torch.cuda, "synchronize", self._make_wait)
        patches.replace(torch.cuda.Stream, "synchronize", self._make_wait)
        patches.replace(torch.cuda.Event, "synchronize", self._make_wait)

    def forget(self) -> None:
        """Start afresh, as in a forked child."""
        self._bursts.forget()

    def _make_sync(self, op: str, original: Any) -> Any:
        tracer, overridden = self._tracer, self._overridden

        def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._compiling():
                return original(tensor, *args, **kwargs)
            if overridden(tensor):
                return original(tensor, *args, **kwargs)
            if not tensor.is_cuda or tracer.owner != get_ident():
                return original(tensor, *args, **kwargs)
            begun = self._wait_begins()
            try:
                return original(tensor, *args, **kwargs)
            finally:
                self._wait_ends(begun, op, sys._getframe(1))

        return call

    def _make_wait(self, original: Any) -> Any:
        tracer, watched = self._tracer, self.watched_call

        def synchronize(*args: Any, **kwargs: Any) -> Any:
            if self._compiling() or tracer.owner != get_ident() or watched[0]:
                return original(*args, **kwargs)
            begun = self._wait_begins()
            try:
                return original(*args, **kwargs)
            finally:
                self._wait_ends(begun, "synchronize", sys._getframe(1))

        return synchronize

    def _wait_begins(self) -> float:
        self.watched_call[0] = True
        now = clock()
        self._tracer.log(ENTER_SYNC if self._grad() else ENTER_SYNC_NO_GRAD)
        self._tracer.at(now)
        return now

    def _wait_ends(self, begun: float, op: str, frame: Any) -> None:
        try:
            self.watched_call[0] = False
            now = clock()
            self._tracer.log(LEAVE)
            self._tracer.at(now)
            self._sites.at(op, frame).add(now - begun)
            self._tracer.relieve()
        except Exception as error:
            self._trouble(error)

    def _make_move(self, op: str, original: Any) -> Any:
        tracer, watched, overridden, compiling = self._tracer, self.watched_call, self._overridden, self._compiling
        bursts, events, waited, copied = self._bursts.at, tracer.codes, self._waited, self._copied

        # The arguments stay in one tuple: to take the tensor out of it and put it back costs as much as our own checks.
        def move(*args: Any, **kwargs: Any) -> Any:
            tensor = args[0]
            if compiling():
                return original(*args, **kwargs)
            if overridden(tensor):
                return original(*args, **kwargs)
            me = get_ident()
            # Where no device is in use, steps that are only counted cannot have copies to it.
            if tracer.looking != me and (tracer.owner != me or not tracer.on_device):
                return original(*args, **kwargs)
            from_device, burst = tensor.is_cuda, None
            if not from_device:
                frame = sys._getframe(1)
                burst = bursts.get(id(frame.f_code) + frame.f_lasti)
                # `Bursts.counts` spelt out: a call of it would cost half as much again.
                if burst is not None and burst.left and burst.events == len(events) and burst.steps == tracer.ended:
                    try:
                        size = tensor.nbytes
                    except RuntimeError:
                        size = LARGE_BYTES  # a sparse one has no such size
                    if size < LARGE_BYTES and burst.code is frame.f_code:
                        burst.left -= 1
                        burst.bytes += size
                        tracer.inside = H2D
                        try:
                            return original(*args, **kwargs) if kwargs else original(*args)
                        finally:
                            tracer.inside = -1
            tracer.inside = SYNC if from_device else H2D
            watched[0] = True
            begun = clock()
            try:
                result = original(*args, **kwargs)
            finally:
                watched[0] = False
                tracer.inside = -1
            # Most calls of `to` change a dtype or nothing at all: only a move between host and device is an event.
            if result.is_cuda != from_device:
                if from_device:
                    waited(begun, op, sys._getframe(1))
                else:
                    copied(begun, tensor, bool(kwargs.get("non_blocking")) or args[-1] is True, sys._getframe(1))
            elif burst is not None:
                burst.time_all()
            return result

        return move

    def _make_copy(self, original: Any) -> Any:
        tracer, watched, overridden = self._tracer, self.watched_call, self._overridden
        counts = self._bursts.counts

        def copy_(tensor: Any, source: Any, non_blocking: bool = False, *args: Any, **kwargs: Any) -> Any:
            if self._compiling():
                return original(tensor, source, non_blocking, *args, **kwargs)
            if overridden(tensor) or overridden(source):
                return original(tensor, source, non_blocking, *args, **kwargs)
            if tracer.owner != get_ident() or getattr(source, "is_cuda", None) in (None, tensor.is_cuda):
                return original(tensor, source, non_blocking, *args, **kwargs)
            from_device = source.is_cuda
            if not from_device and counts(source, sys._getframe(1)):
                tracer.inside = H2D
                try:
                    return original(tensor, source, non_blocking, *args, **kwargs)
                finally:
                    tracer.inside = -1
            tracer.inside = SYNC if from_device else H2D
            watched[0] = True
            begun = clock()
            try:
                return original(tensor, source, non_blocking, *args, **kwargs)
            finally:
                watched[0] = False
                tracer.inside = -1
                if from_device:
                    self._waited(begun, "copy_", sys._getframe(1))
                else:
                    self._copied(begun, source, non_blocking, sys._getframe(1))

        return copy_

    def _waited(self, begun: float, op: str, frame: Any) -> None:
        """A copy to the host is over: the host has waited for the device."""
        self._tracer.log(ENTER_SYNC if self._grad() else ENTER_SYNC_NO_GRAD)
        self._tracer.at(begun)
        self._wait_ends(begun, op, frame)

    def _copied(self, begun: float, source: Any, non_blocking: bool, frame: Any) -> None:
        try:
            now = clock()
            try:
                size = source.nbytes
            except RuntimeError:
                size = source.numel() * source.element_size()  # a sparse one, as if it were dense
            site = self._bursts.timed(begun, now, size, frame)
            # Asking the driver costs more than the rest of this; an odd stride, as copies may take turns on one line.
            if site.count <= _ALWAYS_ASKED or site.count % _ASKED_ONE_IN == 0:
                site.is_pinned = source.is_pinned()
            site.pinned += site.is_pinned
            site.is_non_blocking = non_blocking
            site.non_blocking += non_blocking
            if non_blocking and not site.stream_asked:
                site.stream_asked = True
                cuda = self._torch.cuda
                if cuda.is_initialized() and cuda.current_stream() != cuda.default_stream():
                    self._sites.note_own_stream(site)
            # A smaller copy costs the same whatever its type.
            if size >= LARGE_BYTES and (site.narrow is None or site.count >= site.narrow.next_look):
                self._look_at_values(site, source)
        except Exception as error:
            self._trouble(error)

    def _look_at_values(self, site: Site, source: Any) -> None:
        """Now and then: would a narrower type do for what is copied here?"""
        if site.narrow is None:
            site.narrow = Narrowness()
        try:
            if site.narrow.look(self._torch, source, site.count):
                self._sites.note_narrow(site)
        except Exception:
            pass  # a tensor that does not let itself be read: nothing is learnt of it
