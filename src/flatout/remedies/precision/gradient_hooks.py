"""Notices when the script wants to see or change a gradient in the middle of a backward pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..site import Site

_OF_TENSORS = ("register_hook", "retain_grad", "register_post_accumulate_grad_hook")
_OF_MODULES = ("register_full_backward_hook", "register_full_backward_pre_hook", "register_backward_hook")


def watch_gradient_hooks(site: Site, is_on: Callable[[], bool]) -> set[str]:
    """Give the remedy up at such a call while it `is_on`. Before that, the names of such calls on results gather here.

    Parameters and modules remember their hooks themselves.
    """
    seen: set[str] = set()

    def make(name: str, original: Any) -> Any:
        def register(owner: Any, *args: Any, **kwargs: Any) -> Any:
            if site.in_force:
                if is_on():
                    site.give_up(f"{name} would see scaled gradients")
                elif getattr(owner, "grad_fn", None) is not None:
                    seen.add(name)
            return original(owner, *args, **kwargs)

        return register

    torch = site.torch
    for owner, names in ((torch.Tensor, _OF_TENSORS), (torch.nn.Module, _OF_MODULES)):
        for name in names:
            if hasattr(owner, name):
                site.replace(owner, name, partial(make, name))
    return seen
