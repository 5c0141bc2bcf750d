"""Watches optimizer steps through torch's global step hooks, and gradient scalers that skip one."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol

from .patching import Patches
from .tracer import CODES, ENTER_CLOSURE, LEAVE, OPTIMIZER_BEGINS, OPTIMIZER_ENDS, Tracer, clock

SCALER_SKIPPED = 1


class Output(Protocol):
    def text(self, what: str, value: object) -> None: ...


class OptimizerWatch:
    """Hooks of one process. A closure handed to `step` is its forward and backward, and is booked so."""

    def __init__(
        self, torch: Any, tracer: Tracer, output: Callable[[], Output], trouble: Callable[[Exception], None]
    ) -> None:
        self._compiling = torch.compiler.is_dynamo_compiling
        self._tracer = tracer
        self._output = output
        self._trouble = trouble
        self._known: set[int] = set()
        self._handles: list[Any] = []
        self.ended = self.captured = 0

    def install(self, torch: Any, patches: Patches) -> None:
        from torch.optim import optimizer

        self._handles = [
            optimizer.register_optimizer_step_pre_hook(self._before),
            optimizer.register_optimizer_step_post_hook(self._after),
        ]
        patches.replace(torch.amp.GradScaler, "step", self._make_scaler_step)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        # Inside a compiled step this is a constant for the compiler: the hook leaves no trace in the graph.
        if self._compiling():
            return None
        try:
            if self._tracer.owner != get_ident() and not self._tracer.claim():
                return None
            number = id(optimizer)
            if number not in self._known:
                self._known.add(number)
                self._output().text("optimizer", _describe(optimizer))
            self._tracer.note(number)
            self._tracer.log(clock() * CODES + OPTIMIZER_BEGINS)
            if len(args) > 1 or kwargs:
                return self._with_watched_closure(optimizer, args, kwargs)
            return None
        except Exception as error:
            self._trouble(error)
            return None

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._compiling():
            return
        try:
            if self._tracer.owner == get_ident():
                self._end(optimizer, 0)
        except Exception as error:
            self._trouble(error)

    def _end(self, optimizer: Any, flags: int) -> None:
        tracer = self._tracer
        device = tracer.device
        if device is not None and device.capturing():
            self.captured += 1  # part of the user's CUDA graph: it steps at each replay
            return
        now = clock()
        tracer.note((id(optimizer), flags))
        tracer.log(now * CODES + OPTIMIZER_ENDS)
        self.ended += 1
        if device is not None:
            device.optimizer_ends()
        tracer.step_ended(now)

    def stepped(self, optimizer: Any, flags: int) -> None:
        """A step without the hooks: a scaler skipped it, or a CUDA graph replayed it."""
        self._tracer.note(id(optimizer))
        self._tracer.log(clock() * CODES + OPTIMIZER_BEGINS)
        self._end(optimizer, flags)

    def _with_watched_closure(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        # Some torch versions hand the hook `self` as the first of the arguments.
        given = [i for i, a in enumerate(args) if callable(a) and a is not optimizer]
        if given:
            i = given[0]
            return (*args[:i], self._watched(args[i]), *args[i + 1 :]), kwargs
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._watched(kwargs["closure"])}
        return None

    def _watched(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        log = self._tracer.log

        def watched(*args: Any, **kwargs: Any) -> Any:
            log(clock() * CODES + ENTER_CLOSURE)
            try:
                return closure(*args, **kwargs)
            finally:
                log(clock() * CODES + LEAVE)

        return watched

    def _make_scaler_step(self, original: Any) -> Any:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            ended = self.ended
            result = original(scaler, optimizer, *args, **kwargs)
            try:
                if self.ended == ended and self._tracer.owner == get_ident():
                    # Infinite gradients: the scaler left the optimizer alone. The work of the step was done all the same.
                    self.stepped(optimizer, SCALER_SKIPPED)
            except Exception as error:
                self._trouble(error)
            return result

        return step


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
        # A learning rate on the device stays there: reading it would be a synchronisation.
        "lr": lr if isinstance(lr, int | float) else None,
    }
