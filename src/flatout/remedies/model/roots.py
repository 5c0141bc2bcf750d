"""Which modules a training step calls from outside: its roots, found by a look at a few steps.

Nothing is touched before the first optimizer step. Then, for a few steps, `nn.Module.__call__` is replaced. The
replacement takes itself off while a module with parameters runs: what runs inside is neither seen nor slowed, and a
compiler never meets it. A module without parameters, such as a loss, is no root.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

from ...records.message import message
from ..site import Refused, Site

LOOK_STEPS = 3
# A step that calls more modules than this has none around them: its layers are called one by one.
MOST_ROOTS = 8
_MOST_NODES = 20_000


@dataclass(slots=True)
class Root:
    """A module called from outside. It is not kept alive by this."""

    reference: weakref.ref[Any]
    device_type: str
    # Steps of the look in which it ran.
    steps: set[int] = field(default_factory=set)
    with_grad: bool = False
    # Autograd functions of the script's own in its graph that say nothing about autocast.
    own_functions: set[str] = field(default_factory=set)

    @property
    def module(self) -> Any:
        module = self.reference()
        if module is None:
            raise Refused(message("model.replaced"))
        return module

    @property
    def inner(self) -> Any:
        """The user's own module: what a parallel or a compiling wrapper holds."""
        module = self.module
        while type(module).__name__ in ("DistributedDataParallel", "DataParallel", "OptimizedModule"):
            module = module._orig_mod if type(module).__name__ == "OptimizedModule" else module.module
        return module

    @property
    def name(self) -> str:
        return type(self.inner).__name__

    @property
    def is_compiled(self) -> bool:
        module, inner = self.module, self.inner
        wraps = type(module).__name__ == "OptimizedModule"
        return wraps or any(item._compiled_call_impl is not None for item in (module, inner))


class CallWatch:
    """Stands before `nn.Module.__call__`, and is told of modules with parameters that the script calls itself."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._kind = torch.nn.Module
        self._original: Any = None
        self._replacement: Any = None
        self._thread = 0
        # Whether such a module is running now.
        self.inside = False

    @property
    def looking(self) -> bool:
        return self._replacement is not None

    def begin(self) -> None:
        self._thread = get_ident()
        self._original = self._kind.__call__
        self._replacement = self._make_call()
        self._put_on()

    def end(self) -> None:
        self._take_off()
        self._replacement = None

    def _put_on(self) -> None:
        if self._replacement is not None and self._kind.__call__ is self._original:
            self._kind.__call__ = self._replacement

    def _take_off(self) -> None:
        # Where someone else has wrapped it since, theirs stays; ours then only passes through.
        if self._kind.__call__ is self._replacement:
            self._kind.__call__ = self._original

    def _make_call(self) -> Any:
        original, compiling = self._original, self._torch.compiler.is_dynamo_compiling

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if compiling() or not self.looking or self.inside or get_ident() != self._thread or self._passes():
                return original(module, *args, **kwargs)
            if next(module.parameters(), None) is None:
                return original(module, *args, **kwargs)
            self._take_off()
            self.inside = True
            try:
                self._meet(module)
                result = original(module, *args, **kwargs)
            finally:
                self.inside = False
                self._put_on()
            self._leave(module, result)
            return result

        return call

    def _passes(self) -> bool:
        return False

    def _meet(self, module: Any) -> None:
        """Before it is called."""

    def _leave(self, module: Any, result: Any) -> None:
        """After it was called."""


class RootWatch(CallWatch):
    """The look itself, shared by all remedies that want to know."""

    def __init__(self, torch: Any) -> None:
        super().__init__(torch)
        self._watchers = 0
        self.step = 0
        self._found: dict[int, Root] = {}

    def join(self) -> None:
        self._watchers += 1
        if not self.looking:
            self.step, self._found = 0, {}
            self.begin()

    def leave(self) -> None:
        self._watchers -= 1
        if self._watchers == 0:
            self.end()

    def roots(self) -> list[Root]:
        """Those that belong to the step: trained, or run in every one of them, as a teacher is."""
        alive = [root for root in self._found.values() if root.reference() is not None]
        return [root for root in alive if root.with_grad or len(root.steps) >= LOOK_STEPS - 1]

    def _leave(self, module: Any, result: Any) -> None:
        try:
            self._note(module, result)
        except Exception as error:  # the look is not worth a training
            sys.stderr.write(f"flatout: could not look at {type(module).__name__} ({error})\n")

    def _note(self, module: Any, result: Any) -> None:
        root = self._found.get(id(module))
        if root is None or root.reference() is not module:
            device_type = next(module.parameters()).device.type
            root = self._found[id(module)] = Root(weakref.ref(module), device_type)
        root.steps.add(self.step)
        if not root.with_grad:
            ends = [tensor.grad_fn for tensor in tensors_in(self._torch, result) if tensor.grad_fn is not None]
            root.with_grad = bool(ends)
            root.own_functions |= own_functions(ends)


_watches: dict[int, RootWatch] = {}


def watch_of(torch: Any) -> RootWatch:
    return _watches.setdefault(id(torch), RootWatch(torch))


def find_roots(site: Site, found: Callable[[list[Root]], None]) -> None:
    """Call `found(roots)` once the training has taken a few steps. What that refuses is refused."""
    watch = watch_of(site.torch)
    left: list[int] = []

    def leave() -> None:
        if left:
            left.clear()
            watch.leave()

    def step(number: int) -> None:
        if done:
            return
        if not left:
            left.append(LOOK_STEPS)
            watch.join()
            return
        watch.step = number
        left[0] -= 1
        if left[0] == 0:
            done.append(True)
            roots = watch.roots()
            leave()
            try:
                found(_checked(roots))
            except Refused as refused:
                site.refuse(refused.why)

    done: list[bool] = []
    site.undo(leave)
    site.each_step(step)


def _checked(roots: list[Root]) -> list[Root]:
    if not roots:
        raise Refused(message("model.none"))
    if len(roots) > MOST_ROOTS:
        raise Refused(message("model.too_many", modules=len(roots)))
    if any(type(root.inner).__name__.endswith("ScriptModule") for root in roots):
        raise Refused(message("model.scripted"))
    return roots


def tensors_in(torch: Any, value: Any, depth: int = 4) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(torch, item, depth - 1)
    elif depth and isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(torch, item, depth - 1)


def graph_nodes(ends: list[Any]) -> Iterator[Any]:
    """The nodes of an autograd graph from these on, as far as a look may go."""
    queue, seen = deque(ends), set(ends)
    while queue and len(seen) < _MOST_NODES:
        node = queue.popleft()
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                queue.append(following)


def own_functions(ends: list[Any]) -> set[str]:
    """Autograd functions that are not torch's and not decorated with `custom_fwd`."""
    found = set()
    for node in graph_nodes(ends):
        function = getattr(node, "_forward_cls", None)
        if function is None or function.__module__.split(".")[0] == "torch":
            continue
        if getattr(getattr(function.forward, "__code__", None), "co_name", "") != "decorate_fwd":
            found.add(function.__name__)
    return found
