"""Keeps the weights of convolutions with the channels last, as tensor cores take them.

The layout then goes from layer to layer. Other kernels add up in another order: other rounding, the same training.
Outputs come back with the channels first, so that a `view` in the script still works; one within the model that needs
channels first makes the call fail, and then the layout is put back and the call made again; so does a `view` of a
weight or a gradient (`p.grad.view(-1)`).

Refused without two-dimensional convolutions, where the script sets channels last itself or compiles the model (the
compiler chooses a layout), for a model that is wrapped for several processes already, and for weights whose memory
somebody shares: parts of a larger buffer, one memory for two weights or two processes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ...records.message import message
from ..answers import Answer, Report, has_finding, no, torch_state, yes
from ..model.module_calls import CallAttempts, wrap_calls
from ..model.repeated_calls import map_tensors
from ..model.roots import Root, find_roots
from ..site import Refused, Site
from ..torch_hooks import hook_steps
from ..traits import Bottleneck, Traits

ID = "layout.channels_last"
TITLE = "Convolutions with the channels last"
SAFETY = "numeric"
TRAITS = Traits(Bottleneck.DEVICE, is_switchable=True, builds_on=("precision.bf16", "precision.fp16", "precision.tf32"))
# Of convolutions and matrix products together, and of the convolutions that tensor cores can take.
_OF_CONVOLUTIONS, _MOSTLY_FIRST = 0.5, 0.7


def applies(report: Report) -> Answer:
    if torch_state(report).get("compiled"):
        return no(message("layout.compiled"))
    if has_finding(report, "CO506"):
        return yes(True, message("layout.channels_first"))
    # Tensor cores take them with the channels last: half precision by itself mostly adds conversions.
    if has_finding(report, "CO501", "CO502") and _has_wide_first(report):
        return yes(True, message("layout.with_half"))
    return no(message("layout.none"))


def _has_wide_first(report: Report) -> bool:
    state = torch_state(report)
    layouts = state.get("convolution_layouts")
    first = float(layouts.get("channels_first float32", 0.0)) if isinstance(layouts, dict) else 0.0
    return first >= _MOSTLY_FIRST and float(state.get("convolution_share") or 0.0) >= _OF_CONVOLUTIONS


def apply(site: Site, value: Any) -> None:
    optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
    hook_steps(site, lambda optimizer, args, kwargs: optimizers.add(optimizer))
    find_roots(site, lambda roots: _begin(site, roots, optimizers))


def _begin(site: Site, roots: list[Root], optimizers: weakref.WeakSet[Any]) -> None:
    torch = site.torch
    last, first = torch.channels_last, torch.contiguous_format
    weights = []
    for root in roots:
        if root.is_compiled:
            raise Refused(message("layout.script_compiles"))
        if root.module is not root.inner:
            raise Refused(message("layout.buffers_laid_out", module=type(root.module).__name__))
        weights += [parameter for parameter in root.module.parameters() if parameter.dim() == 4]
    if not weights:
        raise Refused(message("layout.no_convolutions"))
    if any(weight.is_contiguous(memory_format=last) and not weight.is_contiguous() for weight in weights):
        raise Refused(message("remedy.script_sets_it"))
    if _is_shared([parameter for root in roots for parameter in root.module.parameters()]):
        raise Refused(message("layout.shared_memory"))
    kept = [weakref.ref(weight) for weight in weights]

    def lay(layout: Any) -> None:
        for weight in (reference() for reference in kept):
            if weight is not None:
                _lay_out(weight, layout, optimizers)

    site.undo(lambda: lay(first))
    lay(last)
    _wrap(site, roots)
    _mend_views(site, kept)
    site.tell(modules=[root.name for root in roots], weights=len(weights), since_step=site.step)


def _is_shared(parameters: list[Any]) -> bool:
    places = [parameter.data_ptr() for parameter in parameters if parameter.numel()]
    return len(set(places)) < len(places) or any(
        parameter.untyped_storage().nbytes() != parameter.nbytes
        or (parameter.device.type == "cpu" and parameter.is_shared())
        for parameter in parameters
        if parameter.dim() == 4
    )


def _mend_views(site: Site, kept: list[weakref.ref[Any]]) -> None:
    """Flat views of weights and gradients, as many a script takes for their norm, need the channels first."""

    def make(original: Any) -> Any:
        def view(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(tensor, *args, **kwargs)
            except RuntimeError:
                owner = _owner_of(tensor, kept) if site.in_force else None
                if owner is None:
                    raise
            site.give_up(message("layout.view"))
            # `p.data` and `p.detach()` are tensors of their own over the same memory; that is another one now.
            tensor.data = owner.data
            return original(tensor, *args, **kwargs)

        return view

    site.replace(site.torch.Tensor, "view", make)


def _owner_of(tensor: Any, kept: list[weakref.ref[Any]]) -> Any:
    weights = [weight for weight in (reference() for reference in kept) if weight is not None]
    for owner in (*weights, *(weight.grad for weight in weights if weight.grad is not None)):
        if owner.data_ptr() == tensor.data_ptr() and owner.shape == tensor.shape:
            return owner
    return None


def _lay_out(weight: Any, layout: Any, optimizers: weakref.WeakSet[Any]) -> None:
    """The weight, its gradient, and what optimizers keep of it: one update goes over all of them."""
    weight.data = weight.data.contiguous(memory_format=layout)
    if weight.grad is not None:
        weight.grad.data = weight.grad.data.contiguous(memory_format=layout)
    for optimizer in optimizers:
        state = optimizer.state.get(weight, {})
        for name, item in list(state.items()):
            if getattr(item, "shape", None) == weight.shape:
                state[name] = item.contiguous(memory_format=layout)


def _wrap(site: Site, roots: list[Root]) -> None:
    torch, tries = site.torch, CallAttempts(site)

    def contiguous(tensor: Any) -> Any:
        if tensor.dim() == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last):
            return tensor.contiguous()
        return tensor

    def run(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], onward: Callable[..., Any]) -> Any:
        def changed() -> Any:
            return map_tensors(torch, onward(module, *args, **kwargs), contiguous)

        return tries.call(module, changed, lambda: onward(module, *args, **kwargs), needs_undoing=True)

    wrap_calls(site, roots, run)
