"""Replaces the calls of single modules; from the very first training call on where memory is what a remedy is for."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

from ..site import Refused, Site
from ..step_hooks import before_steps

# A step that calls more modules than this has none around them: its layers are called one by one.
_MOST_ROOTS = 8
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
    look = _Look(site, prepare)
    look.put_on()
    site.undo(look.end)
    before_steps(site, lambda *_: look.end())


class _Look:
    """Stands before `nn.Module.__call__` while nothing else runs; within a root it is off."""

    def __init__(self, site: Site, prepare: Callable[[Any], None]) -> None:
        self._site = site
        self._prepare = prepare
        self._kind = site.torch.nn.Module
        self._original = self._kind.__call__
        self._call = self._make()
        self._thread = get_ident()
        self._is_over = False
        self._is_inside = False
        self._seen: list[Any] = []

    def put_on(self) -> None:
        if not self._is_over and self._kind.__call__ is self._original:
            self._kind.__call__ = self._call

    def take_off(self) -> None:
        # Where someone else has wrapped it since, theirs stays; ours then only passes through.
        if self._kind.__call__ is self._call:
            self._kind.__call__ = self._original

    def end(self) -> None:
        self._is_over = True
        self._seen.clear()
        self.take_off()

    def _make(self) -> Any:
        original, torch = self._original, self._site.torch
        compiling, in_backward = torch.compiler.is_dynamo_compiling, torch._C._current_graph_task_id

        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            if compiling() or self._is_over or self._is_inside or get_ident() != self._thread:
                return original(module, *args, **kwargs)
            if in_backward() != _NOT_IN_BACKWARD:
                # A checkpoint runs a part of the model again.
                return original(module, *args, **kwargs)
            if next(module.parameters(), None) is None:
                return original(module, *args, **kwargs)
            self._is_inside = True
            self.take_off()
            try:
                if module.training and torch.is_grad_enabled() and self._site.in_force:
                    self._meet(module)
                return original(module, *args, **kwargs)
            finally:
                self._is_inside = False
                self.put_on()

        return __call__

    def _meet(self, module: Any) -> None:
        if any(one is module for one in self._seen):
            return
        self._seen.append(module)
        try:
            if len(self._seen) > _MOST_ROOTS:
                raise Refused("the training step calls its layers one by one; there is no model around them")
            self._prepare(module)
        except Refused as refused:
            self._site.refuse(str(refused))
        except Exception as error:  # nothing of ours may end a training
            self._site.give_up(f"{type(error).__name__}: {error}")
