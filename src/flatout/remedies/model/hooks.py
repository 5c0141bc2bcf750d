"""Models that must be called as they are: somebody listens to their calls, or wraps them."""

from __future__ import annotations

from typing import Any

from ..site import Refused

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(f"_global{name}" for name in _HOOKS)
_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")


def check_hooks(torch: Any, module: Any) -> None:
    """Raises Refused where a hook on a module would be called at other times, or not at all."""
    if any(getattr(torch.nn.modules.module, hooks, None) for hooks in _GLOBAL_HOOKS):
        raise Refused("a hook on all modules would be called at other times")
    for part in module.modules():
        if any(getattr(part, hooks, None) for hooks in _HOOKS):
            raise Refused(f"a hook on {type(part).__name__} would be called at other times")


def check_plain(module: Any) -> None:
    """Raises Refused for a model that is wrapped or compiled."""
    name = type(module).__name__
    if is_compiled(module):
        raise Refused("the script compiles the model itself")
    if name in _WRAPPERS or name.startswith("FSDP"):
        raise Refused(f"{name} exchanges gradients within the backward pass")


def is_compiled(module: Any) -> bool:
    """Whether it, or a part of it, is called in another way than its own; remedies that go together do not count."""
    others = (part._compiled_call_impl for part in module.modules())
    is_anothers = any(one is not None and not getattr(one, "goes_with_others", False) for one in others)
    return type(module).__name__ == "OptimizedModule" or is_anothers
