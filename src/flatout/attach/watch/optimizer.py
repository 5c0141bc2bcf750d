"""Watches optimizer steps: torch's global step hooks, gradient scalers that skip one, CUDA graphs that replay one."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

from ..context import Context, Watcher
from ..patching import guard
from ..tracer import ENTER_CLOSURE, LEAVE, OPTIMIZER_BEGINS, OPTIMIZER_ENDS, Tracer, clock

_SCALER_SKIPPED, _REPLAYED = 1, 2  # flags of a step record


class Turns:
    """Optimizers that step in turn on one batch (a GAN): one cycle of them is a step."""

    def __init__(self) -> None:
        self._stepping: list[int] = []
        # The number of the optimizer that ended last.
        self.last = self._before_leader = -1

    def follow(self, codes: Sequence[int], leader: int) -> None:
        """`leader` is the one whose turn is the first of a step."""
        for code in codes:
            what = code & 31
            if what == OPTIMIZER_BEGINS:
                self._stepping.append(code >> 5)
            elif what == OPTIMIZER_ENDS:
                number = self._stepping.pop() if self._stepping else 0
                if not self._stepping:  # else one that another one wraps
                    if number == leader:
                        self._before_leader = self.last
                    self.last = number

    @property
    def is_at_an_end(self) -> bool:
        """Did the last optimizer of a step end last? As long as none was seen to follow another, nobody knows."""
        return self.last == self._before_leader


class OptimizerWatch(Watcher):
    """Hooks of one process. A closure handed to `step` is its forward and backward, and is booked so."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._numbers: dict[int, int] = {}
        self._handles: list[Any] = []
        self._captured = 0  # steps in the CUDA graph that is being captured

    def install(self) -> None:
        from torch.optim import optimizer

        self._handles = [
            optimizer.register_optimizer_step_pre_hook(self._make_before()),
            optimizer.register_optimizer_step_post_hook(self._make_after()),
        ]
        torch, patches = self._torch, self._patches
        patches.replace(optimizer.Optimizer, "__init__", self._make_init)
        patches.replace(torch.amp.GradScaler, "step", self._make_scaler_step)
        if self._context.has_device:
            patches.replace(torch.cuda.CUDAGraph, "capture_end", self._make_capture_end)
            patches.replace(torch.cuda.CUDAGraph, "replay", self._make_replay)

    def at_uninstall(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _make_before(self) -> Any:
        tracer, log, at = self._tracer, self._tracer.log, self._tracer.at
        device, numbers, compiling, trouble = self._device, self._numbers, self._compiling, self._trouble

        def before(optimizer: Any, args: Any, kwargs: Any) -> Any:
            # Inside a compiled step this is a constant for the compiler: the hook leaves no trace in the graph.
            if compiling():
                return None
            me = get_ident()
            if tracer.looking != me and (tracer.owner == me or not tracer.claim_training()):
                return None
            try:
                if device is not None and device.is_capturing():
                    return None
                number = numbers.get(id(optimizer)) or self._meet(optimizer)
                if tracer.window is not None:
                    tracer.window.optimizer_begins(optimizer)
                log(number << 5 | OPTIMIZER_BEGINS)
                at(clock())
                if len(args) > 1 or kwargs:
                    return self._with_watched_closure(optimizer, args, kwargs)
            except Exception as error:
                trouble(error)
            return None

        return before

    def _make_after(self) -> Any:
        tracer, device, compiling, trouble = self._tracer, self._device, self._compiling, self._trouble
        log, at = tracer.log, tracer.at

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if compiling():
                return
            me = get_ident()
            if tracer.looking != me:
                if tracer.owner == me:
                    self._count(tracer)
                return
            try:
                tracer.ended += 1
                if device is not None:
                    if device.is_capturing():
                        self._captured += 1  # part of the user's CUDA graph: it steps at each replay
                        return
                    device.optimizer_ends(resting=tracer.rest_for > 0)
                if tracer.window is not None:
                    tracer.window.optimizer_ends()
                now = clock()
                log(OPTIMIZER_ENDS)
                at(now)
                if now >= tracer.flush_at:
                    tracer.flush(now)
                if tracer.rest_for:
                    tracer.rest()
                    if device is not None:
                        device.rests()
            except Exception as error:
                trouble(error)

        return after

    def _count(self, tracer: Tracer) -> None:
        try:
            tracer.ended += 1
            if self._device is not None and self._device.is_capturing():
                self._captured += 1
                return
            tracer.glossed_over += 1
            if tracer.glossed_over >= tracer.rest_for:
                tracer.wake()
        except Exception as error:
            self._trouble(error)

    def _make_init(self, original: Any) -> Any:
        def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            guard(lambda: self._know(optimizer), self._trouble)

        return __init__

    def _know(self, optimizer: Any) -> None:
        """One that has not stepped yet has weights, too."""
        known = self._context.optimizers
        if not any(reference() is optimizer for reference in known):
            known[:] = [reference for reference in known if reference() is not None]
            known.append(weakref.ref(optimizer))

    def _meet(self, optimizer: Any) -> int:
        """A new optimizer: give it a number and write down what it is."""
        number = self._numbers[id(optimizer)] = len(self._numbers) + 1
        self._know(optimizer)
        self._output().text("optimizer", _describe(optimizer))
        return number

    def _add_step(self, flags: int) -> None:
        """A step without the hooks: a scaler skipped it, or a CUDA graph replayed it."""
        self._tracer.wake()
        now = clock()
        self._tracer.log(OPTIMIZER_BEGINS)  # number 0: a step of its own, whichever came before
        self._tracer.at(now)
        self._tracer.log(flags << 5 | OPTIMIZER_ENDS)
        self._tracer.at(now)
        if self._device is not None:
            self._device.optimizer_ends()
        if now >= self._tracer.flush_at:
            self._tracer.flush(now)

    def _with_watched_closure(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        # Some torch versions hand the hook `self` as the first of the arguments.
        given = [i for i, a in enumerate(args) if callable(a) and a is not optimizer]
        if given:
            i = given[0]
            return (*args[:i], self._wrap_closure(args[i]), *args[i + 1 :]), kwargs
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._wrap_closure(kwargs["closure"])}
        return None

    def _wrap_closure(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        log, at = self._tracer.log, self._tracer.at

        def watched(*args: Any, **kwargs: Any) -> Any:
            log(ENTER_CLOSURE)
            at(clock())
            try:
                return closure(*args, **kwargs)
            finally:
                log(LEAVE)
                at(clock())

        return watched

    def _make_scaler_step(self, original: Any) -> Any:
        tracer = self._tracer

        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            ended = tracer.ended
            result = original(scaler, optimizer, *args, **kwargs)
            try:
                if tracer.owner == get_ident() and tracer.ended == ended:
                    # Infinite gradients: the scaler left the optimizer alone, but the work of the step was done.
                    self._add_step(_SCALER_SKIPPED)
            except Exception as error:
                self._trouble(error)
            return result

        return step

    # CUDA graphs: a captured optimizer step runs again at every replay, without any of our hooks.

    def _make_capture_end(self, original: Any) -> Any:
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(graph, *args, **kwargs)
            try:
                self._context.has_captured = True
                graph._flatout_steps = self._captured
                self._captured = 0
            except Exception as error:
                self._trouble(error)
            return result

        return capture_end

    def _make_replay(self, original: Any) -> Any:
        tracer = self._tracer

        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(graph, *args, **kwargs)
            try:
                if graph.__dict__.get("_flatout_steps") and tracer.owner == get_ident():
                    self._add_step(_REPLAYED)
            except Exception as error:
                self._trouble(error)
            return result

        return replay


def _describe(optimizer: Any) -> dict[str, object]:
    groups = optimizer.param_groups
    first = groups[0] if groups else {}
    lr = first.get("lr")
    return {
        "class": f"{type(optimizer).__module__}.{type(optimizer).__qualname__}",
        "fused": first.get("fused"),
        "foreach": first.get("foreach"),
        "capturable": first.get("capturable"),
        "groups": len(groups),
        "params": sum(len(group["params"]) for group in groups),
        "bytes": _bytes_by_dtype(groups),
        # A learning rate on the device stays there: reading it would be a synchronisation.
        "lr": lr if isinstance(lr, int | float) else None,
    }


def _bytes_by_dtype(groups: Any) -> dict[str, int]:
    """Of what it has to update."""
    found: dict[str, int] = {}
    for group in groups:
        for weight in group["params"]:
            try:
                size = weight.numel() * weight.element_size()
            except (RuntimeError, ValueError):
                continue  # a lazy one that never got its shape
            name = str(weight.dtype).removeprefix("torch.")
            found[name] = found.get(name, 0) + size
    return found
