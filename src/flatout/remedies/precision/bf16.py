"""Computes forward and backward of the model in bf16 where autocast finds that safe.

Weights, gradients and optimizer stay in float32, products are done on the tensor cores with 8 bits of mantissa and
float32's range: other rounding, the same training. Every module that the training step calls from outside is run under
autocast, in evaluation too; its outputs come back in float32, so the loss is computed as before.

Refused where the script chooses a precision itself (autocast that is on, or off in so many words; half or double
weights), where an autograd function of its own says nothing about autocast, on a GPU without bf16, and where no module
is around the layers. An autocast that the script could switch on, and does not, is no such choice. Given up when the
loss is no longer finite, or when a module fails that works without.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from ...records.message import message
from ..answers import TENSOR_CORES_IDLE, Answer, Report, are_tensor_cores_idle, half_share, has_finding, no, yes
from ..model.module_calls import CallAttempts, wrap_calls
from ..model.repeated_calls import map_tensors
from ..model.roots import Root, find_roots, watch_of
from ..site import Refused, Site
from ..traits import Bottleneck, Traits, WarmUp
from ..user_code import user_frame

ID = "precision.bf16"
TITLE = "Forward and backward in bf16, by autocast around the model"
SAFETY = "numeric"
TRAITS = Traits(Bottleneck.DEVICE, is_switchable=True, warm_up=WarmUp(10), rounding=2.0**-8)
CONFLICTS = ("precision.fp16",)


def applies(report: Report) -> Answer:
    half = half_share(report)
    if half:
        return no(message("precision.already_half", share=half))
    # Products in float32 gain by bf16 what they gain by TF32, and more.
    for code, words in (
        ("CO502", message("bf16.tf32_slower")),
        ("CO501", message("precision.no_tensor_cores")),
    ):
        if has_finding(report, code):
            return yes(True, words)
    if are_tensor_cores_idle(report):
        return yes(True, TENSOR_CORES_IDLE)
    return no(message("precision.not_bound"))


def apply(site: Site, value: Any) -> None:
    autocast_roots(site, site.torch.bfloat16, lambda roots: watch_loss(site))


# Runs the roots under autocast, with their outputs back in float32.
#
# The loss and whatever else the script computes outside its modules stays in float32. The modules run so in training
# and in evaluation alike: both losses then come from the same arithmetic. Casts of weights are not cached from one use
# to the next within a call: a cached cast that was first made without gradients would silently lose them.


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
            site.tell(autocast=message("precision.own_autocast_off"))
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
                setattr(context, _SWITCH, is_switched_off(site.torch, context))

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
        raise Refused(message("precision.own_autocast"))
    # In float16 gradients have to be scaled, and a scaler of the script's is most likely switched off by the same.
    if "off" in seen or ("switch" in seen and dtype is not torch.bfloat16):
        raise Refused(message("precision.own_switch"))
    for root in roots:
        kinds = {
            parameter.dtype
            for parameter in root.module.parameters()
            if parameter.is_floating_point() or parameter.is_complex()
        }
        others = sorted(str(kind).removeprefix("torch.") for kind in kinds - {torch.float32})
        if others:
            raise Refused(message("precision.own_weights", module=root.name, dtypes=", ".join(others)))
        if root.own_functions:
            names = ", ".join(sorted(root.own_functions))
            raise Refused(message("precision.own_functions", functions=names, module=root.name))
    on_gpu = any(root.device_type == "cuda" for root in roots)
    if on_gpu and dtype is torch.bfloat16 and torch.cuda.get_device_capability() < (8, 0):
        raise Refused(message("precision.no_bf16", device=torch.cuda.get_device_name()))
    for kind in {root.device_type for root in roots}:
        if not torch.amp.is_autocast_available(kind):
            raise Refused(message("precision.no_autocast", device=kind))


def _begin(site: Site, roots: list[Root], dtype: Any) -> None:
    torch, tries = site.torch, CallAttempts(site)
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
            return map_tensors(torch, result, wide)

        return tries.call(module, changed, lambda: onward(module, *args, **kwargs))

    wrap_calls(site, roots, run)


# Is an autocast off because of a switch of the script's, or on purpose? `torch.autocast("cuda", enabled=config.amp)`
# was written for autocast and nobody has turned it on; `enabled=False` keeps something in float32 on purpose. The
# call that makes the context tells.

_LIBRARIES = ("site-packages", "dist-packages")


def is_switched_off(torch: Any, context: Any) -> bool:
    """Asked while the context is being made. False where it cannot be told, and in code that is not the user's."""
    frame = user_frame(torch)
    if any(name in frame.f_code.co_filename for name in _LIBRARIES):
        return False
    try:
        call = _call(frame)
    except Exception:  # this is the script's own call: whatever its source is like, the call goes on
        return False
    if call is None:
        return False
    named = next((keyword.value for keyword in call.keywords if keyword.arg == "enabled"), None)
    if named is not None:
        return not isinstance(named, ast.Constant)
    if any(keyword.arg is None for keyword in call.keywords) or any(
        isinstance(argument, ast.Starred) for argument in call.args
    ):
        return False
    # torch.autocast(device, dtype, enabled), but torch.cuda.amp.autocast(enabled).
    place = 2 if type(context) is torch.amp.autocast_mode.autocast else 0
    return len(call.args) > place and not isinstance(call.args[place], ast.Constant)


def _call(frame: FrameType) -> ast.Call | None:
    """The call that this frame is in the middle of, as it is written."""
    place = next(
        (found for number, found in enumerate(frame.f_code.co_positions()) if 2 * number == frame.f_lasti), None
    )
    if place is None or None in place:
        return None
    first, last, begin, end = (int(number or 0) for number in place)
    lines = [line.encode() for line in linecache.getlines(frame.f_code.co_filename, frame.f_globals)[first - 1 : last]]
    if not lines:
        return None
    # Cut off the end first: it may be in the same line as the beginning.
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    expression = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    return expression if isinstance(expression, ast.Call) else None


# Looks at the loss now and then, and gives a remedy up when it is no longer finite. Never waits for the device: the
# answer is copied to pinned memory and read when it has arrived, steps later.

_EVERY = 50
_FIRST = 5
# One odd batch makes a loss infinite once; broken weights make it so for good.
_ENOUGH = 2


class LateAnswer:
    """One value on its way from the device to the host."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._host: Any = None
        self._arrives: Any = None

    @property
    def is_awaited(self) -> bool:
        return self._host is not None

    def send(self, value: Any) -> None:
        torch = self._torch
        if value.is_cuda:
            self._host = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
            self._host.copy_(value, non_blocking=True)
            self._arrives = torch.cuda.Event()
            self._arrives.record()
        else:
            self._host, self._arrives = value.detach().clone(), None

    def take(self) -> float | None:
        if self._host is None or (self._arrives is not None and not self._arrives.query()):
            return None
        value, self._host, self._arrives = float(self._host), None, None
        return value


class LossWatch:
    """Is told of every backward pass."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._answer = LateAnswer(site.torch)
        self._passes = 0
        self._bad_looks = 0

    def look(self, tensors: Any) -> None:
        self._passes += 1
        if self._answer.is_awaited:
            self._judge(self._answer.take())
        elif self._passes <= _FIRST or self._passes % _EVERY == 0 or self._bad_looks:
            self._send(tensors)

    def _send(self, tensors: Any) -> None:
        torch = self._site.torch
        loss = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
        if loss is None or loss.numel() != 1 or (loss.is_cuda and torch.cuda.is_current_stream_capturing()):
            return
        self._answer.send(torch.isfinite(loss.detach()))

    def _judge(self, finite: float | None) -> None:
        if finite is None:
            return
        self._bad_looks = 0 if finite else self._bad_looks + 1
        if self._bad_looks >= _ENOUGH:
            self._site.give_up(message("precision.not_finite"))


def watch_loss(site: Site) -> None:
    """Look at every loss that `torch.autograd.backward` is given, which `Tensor.backward` calls too."""
    watch = LossWatch(site)
    site.before(site.torch.autograd, "backward", lambda tensors, *args, **kwargs: watch.look(tensors))
