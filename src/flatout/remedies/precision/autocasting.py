"""Runs the roots under autocast, with their outputs back in float32.

The loss and whatever else the script computes outside its modules stays in float32. The modules run so in training and
in evaluation alike: both losses then come from the same arithmetic. Casts of weights are not cached from one use to
the next within a call: a cached cast that was first made without gradients would silently lose them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..model.nesting import with_tensors
from ..model.root_calls import Tries, wrap_calls
from ..model.roots import Root, find_roots, watch_of
from ..site import Refused, Site
from .switch import is_by_switch

_SWITCH, _OVER = "_flatout_is_by_switch", "over"
# Sets up in backward what held in forward.
_CHECKPOINT = "torch.utils.checkpoint"


def autocast_roots(site: Site, dtype: Any, ready: Callable[[list[Root]], None]) -> None:
    """Find the roots, see whether they can run in `dtype`, call `ready(roots)`, and begin."""
    seen = _watch_script(site)

    def found(roots: list[Root]) -> None:
        seen.add(_OVER)
        _check(site.torch, roots, dtype, seen)
        if "switch" in seen:
            site.tell(autocast="the script has one of its own, which is switched off; it is taken to be on")
        ready(roots)
        _begin(site, roots, dtype)
        name = str(dtype).removeprefix("torch.")
        site.tell(modules=[root.name for root in roots], dtype=name, device=roots[0].device_type, since_step=site.step)

    find_roots(site, found)


def _watch_script(site: Site) -> set[str]:
    """What the script itself says about autocast, filled until the roots are found: "on"; "off" around a root, or
    "switch" where that is a switch which is off.
    """
    autocast, watch = site.torch.amp.autocast_mode.autocast, watch_of(site.torch)
    seen: set[str] = set()

    def make_init(original: Any) -> Any:
        def __init__(context: Any, *args: Any, **kwargs: Any) -> None:
            original(context, *args, **kwargs)
            if not context._enabled and _OVER not in seen:
                setattr(context, _SWITCH, is_by_switch(site.torch, context))

        return __init__

    def make(original: Any) -> Any:
        def __enter__(context: Any) -> Any:
            if watch.looking:
                if context._enabled:
                    seen.add("on")
                elif not watch.inside and sys._getframe(1).f_globals.get("__name__") != _CHECKPOINT:
                    # Within a module it only guards a few operations, and is written with autocast in mind.
                    seen.add("switch" if getattr(context, _SWITCH, False) else "off")
            return original(context)

        return __enter__

    site.replace(autocast, "__init__", make_init)
    site.replace(autocast, "__enter__", make)
    return seen


def _check(torch: Any, roots: list[Root], dtype: Any, seen: set[str]) -> None:
    if "on" in seen:
        raise Refused("the script sets it itself: it uses autocast")
    # In float16 gradients have to be scaled, and a scaler of the script's is most likely switched off by the same.
    if "off" in seen or ("switch" in seen and dtype is not torch.bfloat16):
        raise Refused("the script sets it itself: it has an autocast that is switched off; use its own option")
    for root in roots:
        kinds = {one.dtype for one in root.module.parameters() if one.is_floating_point() or one.is_complex()}
        others = sorted(str(kind).removeprefix("torch.") for kind in kinds - {torch.float32})
        if others:
            raise Refused(f"the script sets it itself: {root.name} has weights in {', '.join(others)}")
        if root.own_functions:
            names = ", ".join(sorted(root.own_functions))
            raise Refused(f"{names} in {root.name}: autograd functions without torch.amp.custom_fwd cannot be autocast")
    on_gpu = any(root.device_type == "cuda" for root in roots)
    if on_gpu and dtype is torch.bfloat16 and torch.cuda.get_device_capability() < (8, 0):
        raise Refused(f"{torch.cuda.get_device_name()} does not compute in bf16; precision.fp16 may help")
    for kind in {root.device_type for root in roots}:
        if not torch.amp.is_autocast_available(kind):
            raise Refused(f"there is no autocast for {kind}")


def _begin(site: Site, roots: list[Root], dtype: Any) -> None:
    torch, tries = site.torch, Tries(site)
    # By class: a copy of a root, such as a moving average of it, is run likewise.
    devices = {type(root.module): root.device_type for root in roots}

    def wide(tensor: Any) -> Any:
        return tensor.float() if tensor.dtype is dtype else tensor

    def run(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], onward: Callable[..., Any]) -> Any:
        device = devices.get(type(module)) or next(iter(devices.values()))
        if torch.is_autocast_enabled(device):
            return onward(module, *args, **kwargs)

        def changed() -> Any:
            with torch.autocast(device, dtype=dtype, cache_enabled=False):
                result = onward(module, *args, **kwargs)
            return with_tensors(torch, result, wide)

        return tries.call(module, changed, lambda: onward(module, *args, **kwargs))

    wrap_calls(site, roots, run)
