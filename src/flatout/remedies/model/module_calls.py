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

from ...feed.reasons import error_text
from ...records.message import message
from ..site import Refused, Site
from ..torch_hooks import hook_steps
from .repeated_calls import RandomNumbers
from .roots import MOST_ROOTS, CallWatch, Root

# So many calls of a class are first tries: random numbers, buffers and attributes are put back before a second one.
_FIRST_TRIES = 6
_CONTAINERS = (list, dict, set, deque, OrderedDict)

Call = Callable[[], Any]
# Is given the module, its positional and keyword arguments, and the call as it would be made without the remedy.
Run = Callable[[Any, tuple[Any, ...], dict[str, Any], Callable[..., Any]], Any]


def wrap_calls(site: Site, roots: list[Root], run: Run, is_for_compilers: bool = True) -> None:
    """Have `run` make the calls of these roots, and of every other module of their classes that none of them calls.

    A compiler goes on into the module itself, or else leaves the call to `run`: a graph ends there, and another begins.
    """
    here = threading.local()
    for kind in {type(root.module) for root in roots}:
        site.replace(kind, "__call__", partial(_make_call, site, kind, run, here, is_for_compilers))


def _make_call(  # noqa: PLR0913 (what it closes over)
    site: Site, kind: Any, run: Run, here: threading.local, is_for_compilers: bool, original: Any
) -> Any:
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

    return call if is_for_compilers else torch.compiler.disable(call)


class CallAttempts:
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
            before = FullSavedState(torch, module)
        try:
            return changed()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if before is not None:
                before.restore()
            why = message("model.failed", module=kind.__name__, error=error_text(error))
            if needs_undoing:
                self._site.give_up(why)
            # Raises the script's own error, if it is one.
            result = plain()
            self._site.give_up(why)
            return result


class SavedState:
    def __init__(self, torch: Any, module: Any) -> None:
        self._torch = torch
        self._random = RandomNumbers(torch)
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]

    def restore(self) -> None:
        self._random.restore()
        with self._torch.no_grad():
            for buffer, kept in self._buffers:
                buffer.copy_(kept)


class FullSavedState(SavedState):
    """Attributes of the modules as well (a count, a list of side losses): a call made twice must leave them once."""

    def __init__(self, torch: Any, module: Any) -> None:
        super().__init__(torch, module)
        own = vars(torch.nn.Module()).keys() - {"_buffers"} | {"_compiled_call_impl"}
        self._attributes = [
            (vars(part), {name: value for name, value in vars(part).items() if name not in own})
            for part in module.modules()
        ]
        held = [entry for _, kept in self._attributes for entry in kept.values() if type(entry) in _CONTAINERS]
        self._containers = [(tensor, copy.copy(tensor)) for tensor in held]
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


# Calls of single modules; from the first training call on where a remedy is for memory.

_NOT_IN_BACKWARD = -1


def replace_call(site: Site, module: Any, call: Callable[..., Any]) -> None:
    """On the instance, as torch's own `compile` does it: copies and pickles leave it out."""
    module._compiled_call_impl = call

    def undo() -> None:
        if module.__dict__.get("_compiled_call_impl") is call:
            del module._compiled_call_impl

    site.undo(undo)


def at_first_calls(site: Site, prepare: Callable[[Any], None]) -> None:
    """Before the first training call of every module that the script calls itself: `prepare(module)`.

    It is looked for until the first optimizer step. What `prepare` refuses is refused.
    """
    look = _FirstCallWatch(site, prepare)
    look.begin()
    site.undo(look.end)
    hook_steps(site, lambda *_: look.end())


class _FirstCallWatch(CallWatch):
    def __init__(self, site: Site, prepare: Callable[[Any], None]) -> None:
        super().__init__(site.torch)
        self._site = site
        self._prepare = prepare
        self._seen: list[Any] = []

    def _passes(self) -> bool:
        """In backward a checkpoint runs a part of the model again."""
        return bool(self._torch._C._current_graph_task_id() != _NOT_IN_BACKWARD)

    def _meet(self, module: Any) -> None:
        is_trained = module.training and self._torch.is_grad_enabled() and self._site.in_force
        if not is_trained or any(entry is module for entry in self._seen):
            return
        self._seen.append(module)
        try:
            if len(self._seen) > MOST_ROOTS:
                raise Refused(message("model.layers_one_by_one"))
            self._prepare(module)
        except Refused as refused:
            self._site.refuse(refused.why)
        except Exception as error:  # nothing of ours may end a training
            self._site.give_up(error_text(error))


# Models that must be called as they are, because of hooks or wrappers.

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(f"_global{name}" for name in _HOOKS)
_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")


def check_hooks(torch: Any, module: Any) -> None:
    """Raises Refused where a hook on a module would be called at other times, or not at all."""
    if any(getattr(torch.nn.modules.module, hooks, None) for hooks in _GLOBAL_HOOKS):
        raise Refused(message("model.global_hook"))
    for part in module.modules():
        if any(getattr(part, hooks, None) for hooks in _HOOKS):
            raise Refused(message("model.hook", module=type(part).__name__))


def has_gradient_hook(part: Any) -> bool:
    """Whether a parameter of its own has one."""
    return any(
        parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None)
        for parameter in part._parameters.values()
        if parameter is not None
    )


def check_plain(module: Any) -> None:
    """Raises Refused for a model that is wrapped or compiled."""
    name = type(module).__name__
    if is_compiled(module):
        raise Refused(message("model.script_compiles"))
    if name in _WRAPPERS or name.startswith("FSDP"):
        raise Refused(message("model.exchanges_gradients", module=name))


def is_compiled(module: Any) -> bool:
    """Whether it, or a part of it, is called in another way than its own; remedies that go together do not count."""
    others = (part._compiled_call_impl for part in module.modules())
    is_anothers = any(other is not None and not getattr(other, "goes_with_others", False) for other in others)
    return type(module).__name__ == "OptimizedModule" or is_anothers
