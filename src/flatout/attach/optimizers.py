"""Watches optimizer steps through torch's global step hooks, and gradient scalers that skip one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .patching import Patches
from .tracer import Tracer
from .wire import FORWARD, OPTIMIZER, OTHER

SCALER_SKIPPED = 1


class Output(Protocol):
    def text(self, what: str, value: object) -> None: ...


class OptimizerWatch:
    """Hooks of one process. A closure handed to `step` is its forward and backward, and is booked so."""

    def __init__(
        self, torch: Any, tracer: Tracer, output: Callable[[], Output], trouble: Callable[[Exception], None]
    ) -> None:
        self._compiling = torch.compiler.is_compiling
        self._tracer = tracer
        self._output = output
        self._trouble = trouble
        self._known: set[int] = set()
        self._handles: list[Any] = []
        self.ended = 0

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
            if not self._tracer.mine():
                return None
            number = id(optimizer)
            if number not in self._known:
                self._known.add(number)
                self._output().text("optimizer", _describe(optimizer))
            self._tracer.optimizer_begins(number)
            return self._with_watched_closure(optimizer, args, kwargs)
        except Exception as error:
            self._trouble(error)
            return None

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._compiling():
            return
        try:
            if self._tracer.mine():
                self.ended += 1
                self._tracer.optimizer_ends(id(optimizer))
        except Exception as error:
            self._trouble(error)

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
        tracer, trouble = self._tracer, self._trouble

        def watched(*args: Any, **kwargs: Any) -> Any:
            try:
                tracer.enter(FORWARD)
            except Exception as error:
                trouble(error)
            try:
                return closure(*args, **kwargs)
            finally:
                try:
                    tracer.leave(OPTIMIZER)
                    tracer.settle(OTHER)
                except Exception as error:
                    trouble(error)

        return watched

    def _make_scaler_step(self, original: Any) -> Any:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            ended = self.ended
            result = original(scaler, optimizer, *args, **kwargs)
            try:
                if self.ended == ended and not self._compiling() and self._tracer.mine():
                    # Infinite gradients: the scaler left the optimizer alone. The work of the step was done all the same.
                    self._tracer.optimizer_begins(id(optimizer))
                    self._tracer.optimizer_ends(id(optimizer), SCALER_SKIPPED)
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
