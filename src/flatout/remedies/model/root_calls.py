"""Wraps the calls of the roots, by their classes: what is copied, pickled, hooked or compiled stays as it was.

A call that fails under a remedy is made again without it. If that works, the remedy is given up; if it fails too, the
error is the script's own.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from ..site import Site
from .roots import Root

# So many calls of a class are first tries: random numbers, buffers and attributes are put back before a second one.
_FIRST_TRIES = 6
_CONTAINERS = (list, dict, set, deque, OrderedDict)

Call = Callable[[], Any]
# Is given the module, its positional and keyword arguments, and the call as it would be made without the remedy.
Run = Callable[[Any, tuple[Any, ...], dict[str, Any], Callable[..., Any]], Any]


def wrap_calls(site: Site, roots: list[Root], run: Run) -> None:
    """Have `run` make the calls of these roots, and of every other module of their classes that none of them calls."""
    here = threading.local()
    for kind in {type(root.module) for root in roots}:
        site.replace(kind, "__call__", partial(_make_call, site, kind, run, here))


def _make_call(site: Site, kind: Any, run: Run, here: threading.local, original: Any) -> Any:
    torch = site.torch
    compiling, tracing = torch.compiler.is_dynamo_compiling, torch._C._get_tracing_state
    own = kind.__dict__.get("__call__")

    def onward(module: Any, *args: Any, **kwargs: Any) -> Any:
        # Looked up anew: others, such as torch.fx, replace the call of nn.Module for a while.
        return original(module, *args, **kwargs) if own is not None else super(kind, module).__call__(*args, **kwargs)

    def call(module: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling() or not site.in_force or getattr(here, "inside", False) or tracing() is not None:
            return onward(module, *args, **kwargs)
        here.inside = True
        try:
            return run(module, args, kwargs, onward)
        finally:
            here.inside = False

    return call


class Tries:
    """Makes calls under a remedy, and those that fail once more without it."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._left: dict[type, int] = {}

    def call(self, module: Any, changed: Call, plain: Call, needs_undoing: bool = False) -> Any:
        """`changed()`; if it fails, `plain()`, for which the remedy may have to be undone first."""
        torch, kind = self._site.torch, type(module)
        left = self._left.get(kind, _FIRST_TRIES)
        before = None
        if left:
            self._left[kind] = left - 1
            before = AllBefore(torch, module)
        try:
            return changed()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if before is not None:
                before.restore()
            words = f"{kind.__name__} failed under it ({_short(error)})"
            if needs_undoing:
                self._site.give_up(words)
            # Raises the script's own error, if it is one.
            result = plain()
            self._site.give_up(words)
            return result


class Before:
    """Random numbers and buffers as they are now."""

    def __init__(self, torch: Any, module: Any) -> None:
        self._torch = torch
        self._random = torch.get_rng_state()
        self._on_device = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]

    def restore(self) -> None:
        torch = self._torch
        torch.set_rng_state(self._random)
        if self._on_device is not None:
            torch.cuda.set_rng_state(self._on_device)
        with torch.no_grad():
            for buffer, kept in self._buffers:
                buffer.copy_(kept)


class AllBefore(Before):
    """Attributes of the modules as well (a count, a list of side losses): a call made twice must leave them once."""

    def __init__(self, torch: Any, module: Any) -> None:
        super().__init__(torch, module)
        own = vars(torch.nn.Module()).keys() - {"_buffers"} | {"_compiled_call_impl"}
        self._attributes = [
            (vars(part), {name: value for name, value in vars(part).items() if name not in own})
            for part in module.modules()
        ]
        held = [one for _, kept in self._attributes for one in kept.values() if type(one) in _CONTAINERS]
        self._containers = [(one, copy.copy(one)) for one in held]
        self._own = own

    def restore(self) -> None:
        for attributes, before in self._attributes:
            for name in attributes.keys() - before.keys() - self._own:
                del attributes[name]
            attributes.update(before)
        for container, contents in self._containers:
            container.clear()
            (container.extend if hasattr(container, "extend") else container.update)(contents)
        super().restore()


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
