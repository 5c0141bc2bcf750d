"""Watches calls in which the host waits for the device, hidden waits, and copies. Only where there is a CUDA build.

A call on a CPU tensor is passed on at once: there is no device to wait for.
"""

from __future__ import annotations

import random
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from types import CodeType, FrameType
from typing import Any

from ..context import Context, Watcher
from ..narrow_dtype import DtypeFit
from ..sites import Site, Sites, is_users
from ..tracer import ENTER_SYNC, ENTER_SYNC_NO_GRAD, LEAVE, Tracer, clock
from ..wire import H2D, SYNC

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


class TransferWatch(Watcher):
    """Patches of torch.Tensor's own methods."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._in_timed_sync = context.in_timed_sync
        self._grad = context.torch.is_grad_enabled
        # A subclass or mode that overrides functions is asked first, as torch itself would do, and calls back.
        self._overridden = context.torch.overrides.has_torch_function_unary
        self._bursts = CopyBursts(context.tracer, context.sites)

    def install(self) -> None:
        torch, patches = self._torch, self._patches
        for name, op in _TENSOR_SYNCS.items():
            patches.replace(torch.Tensor, name, partial(self._make_sync, op))
        for name in _MOVES:
            patches.replace(torch.Tensor, name, partial(self._make_move, name))
        patches.replace(torch.Tensor, "copy_", self._make_copy)
        patches.replace(torch.cuda, "synchronize", self._make_wait)
        patches.replace(torch.cuda.Stream, "synchronize", self._make_wait)
        patches.replace(torch.cuda.Event, "synchronize", self._make_wait)

    def at_fork(self) -> None:
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
        tracer, watched = self._tracer, self._in_timed_sync

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
        self._in_timed_sync[0] = True
        now = clock()
        self._tracer.log(ENTER_SYNC if self._grad() else ENTER_SYNC_NO_GRAD)
        self._tracer.at(now)
        return now

    def _wait_ends(self, begun: float, op: str, frame: Any) -> None:
        try:
            self._in_timed_sync[0] = False
            now = clock()
            self._tracer.log(LEAVE)
            self._tracer.at(now)
            self._sites.at(op, frame).add(now - begun)
            self._tracer.relieve()
        except Exception as error:
            self._trouble(error)

    def _make_move(self, op: str, original: Any) -> Any:
        tracer, watched, overridden, compiling = self._tracer, self._in_timed_sync, self._overridden, self._compiling
        bursts, events, note_wait, note_copy = self._bursts.at, tracer.codes, self._note_wait, self._note_copy

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
                # `CopyBursts.count_if_in_burst` spelt out: a call of it would cost half as much again.
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
                    note_wait(begun, op, sys._getframe(1))
                else:
                    note_copy(begun, tensor, bool(kwargs.get("non_blocking")) or args[-1] is True, sys._getframe(1))
            elif burst is not None:
                burst.time_all()
            return result

        return move

    def _make_copy(self, original: Any) -> Any:
        tracer, watched, overridden = self._tracer, self._in_timed_sync, self._overridden
        count_if_in_burst = self._bursts.count_if_in_burst

        def copy_(tensor: Any, source: Any, non_blocking: bool = False, *args: Any, **kwargs: Any) -> Any:
            if self._compiling():
                return original(tensor, source, non_blocking, *args, **kwargs)
            if overridden(tensor) or overridden(source):
                return original(tensor, source, non_blocking, *args, **kwargs)
            if tracer.owner != get_ident() or getattr(source, "is_cuda", None) in (None, tensor.is_cuda):
                return original(tensor, source, non_blocking, *args, **kwargs)
            from_device = source.is_cuda
            if not from_device and count_if_in_burst(source, sys._getframe(1)):
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
                    self._note_wait(begun, "copy_", sys._getframe(1))
                else:
                    self._note_copy(begun, source, non_blocking, sys._getframe(1))

        return copy_

    def _note_wait(self, begun: float, op: str, frame: Any) -> None:
        """A copy to the host is over: the host has waited for the device."""
        self._tracer.log(ENTER_SYNC if self._grad() else ENTER_SYNC_NO_GRAD)
        self._tracer.at(begun)
        self._wait_ends(begun, op, frame)

    def _note_copy(self, begun: float, source: Any, non_blocking: bool, frame: Any) -> None:
        try:
            now = clock()
            try:
                size = source.nbytes
            except RuntimeError:
                size = source.numel() * source.element_size()  # a sparse one, as if it were dense
            site = self._bursts.add_timed(begun, now, size, frame)
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
                    # What is copied there does not wait its turn among the kernels.
                    self._output().text("own_stream", {"site": site.number})
            # A smaller copy costs the same whatever its type.
            if size >= LARGE_BYTES and (site.narrow is None or site.count >= site.narrow.next_look):
                self._look_at_values(site, source)
        except Exception as error:
            self._trouble(error)

    def _look_at_values(self, site: Site, source: Any) -> None:
        """Now and then: would a narrower type do for what is copied here?"""
        seen = site.narrow = site.narrow or DtypeFit()
        try:
            if seen.look(self._torch, source, site.count):
                # The last note on a site counts.
                value = {"site": site.number, "bytes": seen.bytes, "kinds": list(seen.kinds.values())}
                self._output().text("narrow", value)
        except Exception:
            pass  # a tensor that does not let itself be read: nothing is learnt of it


# Bursts: small copies from one line in quick succession. The first are timed, then ever fewer; the rest are counted.
#
# Timing each piece would slow down a batch that goes to the device in hundreds of pieces. Small copies from one line
# cost alike, so those in between are taken to have lasted as long as the next timed one, but no longer than the time
# there was for them. Their number and bytes are exact. Any other event (a wait for the device, a backward pass, the end
# of a step) ends a burst, because the next copy may have to wait for what was launched since.

# How many are timed at first; then up to this share of them, and this many at most, pass untimed between two that are
# timed. What passes at the end of a burst is missing in the step's phases, not in the totals of its line.
_ALL_TIMED, _PASSED_SHARE, _MOST_PASSED = 24, 0.2, 40
# A copy of this many bytes or more costs by its size, and is always timed.
LARGE_BYTES = 64 << 10


@dataclass(slots=True, eq=False)
class CopyBurst:
    """Copies from one instruction of one function. While `left` is above 0 they are only counted."""

    # Kept alive, so that no other function's code comes to lie at its address.
    code: CodeType
    site: Site | None = None
    left: int = 0
    let_pass: int = 0
    bytes: int = 0
    copies: int = 0
    is_mixed: bool = False
    # As they were at the last copy that was timed.
    events: int = -1
    steps: int = -1
    copy_s: float = 0.0
    until: float = 0.0

    def time_all(self) -> None:
        """A call here turned out to be no copy, as one of those that were only counted may have been."""
        self.is_mixed = True
        self.left = self.let_pass = self.bytes = 0


class CopyBursts:
    """All of this process."""

    def __init__(self, tracer: Tracer, sites: Sites) -> None:
        self._tracer = tracer
        self._sites = sites
        # By the address of the caller's code plus its instruction; the code itself would be hashed anew each time.
        self.at: dict[int, CopyBurst] = {}
        self._draw = random.Random(20261).random  # our own: the script's random state is not ours to move

    def count_if_in_burst(self, tensor: Any, frame: FrameType) -> bool:
        """Count a copy of this tensor, made there, if it need not be timed. Returns whether it was counted."""
        burst = self.at.get(id(frame.f_code) + frame.f_lasti)
        tracer = self._tracer
        if burst is None or not burst.left or burst.events != len(tracer.codes) or burst.steps != tracer.ended:
            return False
        try:
            size = tensor.nbytes
        except RuntimeError:
            return False  # a sparse one has no such size
        if size >= LARGE_BYTES or burst.code is not frame.f_code:
            return False
        burst.left -= 1
        burst.bytes += size
        return True

    def add_timed(self, begun: float, now: float, size: int, frame: FrameType) -> Site:
        """Book a copy that was timed, with those that were only counted since the last. Returns its site."""
        burst = self.at.get(id(frame.f_code) + frame.f_lasti)
        if burst is None or burst.code is not frame.f_code:
            burst = self._begin(frame)
        site = burst.site or self._sites.at("h2d", frame)
        tracer, copy_s = self._tracer, now - begun
        events = len(tracer.codes)
        goes_on = burst.steps == tracer.ended and burst.events == events
        passed, passed_s = burst.let_pass - burst.left, 0.0
        if passed:
            # After a break this copy may have had to wait, but not those before it: the last one speaks for them.
            passed_s = min(passed * copy_s, begun - burst.until) if goes_on else passed * burst.copy_s
            site.add_alike(passed, passed_s, burst.bytes)
            burst.bytes = 0
        if not tracer.is_resting:
            tracer.add_copies(begun, now, passed, passed_s if goes_on else 0.0)
            events = len(tracer.codes)
        site.add(copy_s)
        site.bytes += size
        burst.copies = burst.copies + 1 + passed if goes_on else 1
        burst.events, burst.steps = events, tracer.ended
        burst.left = burst.let_pass = 0
        # In a window for hidden waits every call is watched.
        if burst.copies >= _ALL_TIMED and not burst.is_mixed and not tracer.every_step:
            burst.copy_s, burst.until = copy_s, now
            # By chance, as a step may send several things in turn from one line.
            burst.left = burst.let_pass = 1 + int(self._draw() * min(_MOST_PASSED, _PASSED_SHARE * burst.copies))
        return site

    def _begin(self, frame: FrameType) -> CopyBurst:
        code = frame.f_code
        burst = self.at[id(code) + frame.f_lasti] = CopyBurst(code)
        if is_users(code.co_filename):
            # A library's line may be reached from many of the user's: there it is asked each time.
            burst.site = self._sites.at("h2d", frame)
        return burst

    def forget(self) -> None:
        """Start afresh, as in a forked child."""
        self.at.clear()


# Hidden GPU syncs: masks, nonzero, a device scalar used as a shape.
#
# For a step now and then, PyTorch's own sync debug mode is set to "warn" and its warnings are caught here: they never
# reach the user, and a user's "error" filter never sees them.

_MESSAGE = "called a synchronizing CUDA operation"
_FILTER = ("always", re.compile(f".*{_MESSAGE}|.*Synchronization debug mode", re.DOTALL), Warning, None, 0)
_FIRST_STEP = 3
_FIRST_PAUSE_S = 2.0
_LONGEST_PAUSE_S = 60.0


class HiddenSyncWatch(Watcher):
    """A window opens at the end of one step and closes at the end of the next."""

    _show_before: Any = None
    _pause_s = _FIRST_PAUSE_S
    _due_s = 0.0
    _opened_at = 0
    _failed = False
    _is_open = False

    def at_step_end(self, codes: Sequence[int], index: int, now: float) -> bool:
        """Returns whether a window is open: then the next step is read by itself."""
        if self._failed:
            return False
        if self._is_open:
            self._close()
            self._sites.window_steps += index - self._opened_at
            if self._sites.window_steps % 2 == 0:
                self._due_s = now + self._pause_s
                self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        if index >= _FIRST_STEP and now >= self._due_s and self._torch.cuda.is_initialized():
            self._opened_at = index
            self._open()
        return self._is_open

    def _open(self) -> None:
        cuda = self._torch.cuda
        if cuda.is_current_stream_capturing() or cuda.get_sync_debug_mode() != 0:
            return  # the user looks for syncs themselves, or captures a graph
        self._show_before = warnings.showwarning
        warnings.showwarning = self._show  # type: ignore[assignment]
        filters: Any = warnings.filters
        filters.insert(0, _FILTER)
        _invalidate_filters()
        self._is_open = True
        try:
            cuda.set_sync_debug_mode("warn")
        except Exception:
            self._failed = True
            self._close()

    def at_stop(self) -> None:
        self._close()

    at_uninstall = at_stop

    def _close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        cuda = self._torch.cuda
        if cuda.get_sync_debug_mode() == 1:
            cuda.set_sync_debug_mode(0)
        filters: Any = warnings.filters
        if _FILTER in filters:
            filters.remove(_FILTER)
        _invalidate_filters()
        # If the script has put its own in place since, that one stays.
        if warnings.showwarning == self._show:
            warnings.showwarning = self._show_before

    def _show(self, message: Any, category: Any, filename: str, lineno: int, *rest: Any) -> None:
        text = str(message)
        if _MESSAGE in text:
            if self._is_open and not self._context.in_timed_sync[0]:
                self._sites.at("hidden", sys._getframe(1)).add(0.0)
        elif "Synchronization debug mode" not in text:
            self._show_before(message, category, filename, lineno, *rest)


def _invalidate_filters() -> None:
    """Python keeps a cache per module of what the filters said; it has to be told. The name varies with the version."""
    for name in ("_filters_mutated", "_filters_mutated_lock_held"):
        changed = getattr(warnings, name, None)
        if changed is not None:
            changed()
            return
