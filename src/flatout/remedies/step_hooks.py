"""Hooks around every optimizer's step, of one remedy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from .site import Site

# torch.optim hides the module of this name behind its own namespace.
_MODULE = "torch.optim.optimizer"

Hook = Callable[[Any, Any, Any], None]


def before_steps(site: Site, before: Hook, after: Hook | None = None) -> None:
    """Call `before(optimizer, args, kwargs)`, ahead of others' hooks, so that they see what it has changed."""
    module: Any = sys.modules[_MODULE]
    compiling = site.torch.compiler.is_dynamo_compiling

    def guarded(hook: Hook) -> Callable[[Any, Any, Any], None]:
        def run(optimizer: Any, args: Any, kwargs: Any) -> None:
            if not compiling() and site.in_force:
                site.guarded(lambda: hook(optimizer, args, kwargs), lambda: None)

        return run

    handle = module.register_optimizer_step_pre_hook(guarded(before))
    _undo_later(site, handle)
    # Others' hooks describe the optimizer as it is; torch calls them in this order.
    hooks = getattr(module, "_global_optimizer_pre_hooks", None)
    if hooks is not None and handle.id in hooks:
        hooks.move_to_end(handle.id, last=False)
    if after is not None:
        _undo_later(site, module.register_optimizer_step_post_hook(guarded(after)))


def _undo_later(site: Site, handle: Any) -> None:
    """Torch goes over its hooks while they run, so none may go just then: one that has to wait does nothing."""

    def undo() -> None:
        if _in_a_step():
            site.undo(undo)
        else:
            handle.remove()

    site.undo(undo)


def _in_a_step() -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == _MODULE:
            return True
        frame = frame.f_back
    return False
