"""Computes forward and backward of the model in fp16, for GPUs that have no bf16.

As `precision.bf16`, with fp16's narrower range: gradients are scaled up while they are in fp16 (see `scaling.py`) and
are true gradients again when `backward` returns, so clipping, logging and accumulating work as before. Steps whose
gradients overflow leave the weights alone; the factor that was found is saved within the optimizer's `state_dict` and
taken up again from there. Other rounding, the same training, but for the steps left out at the start.

Refused where `precision.bf16` is, and where somebody would see scaled gradients or a closure would run them: hooks on
parameters, modules or results in backward, `retain_grad()`, `optimizer.step(closure)`, `backward(create_graph=True)`,
anomaly mode, sparse gradients, a model on several devices, gradients of tensors that no optimizer holds (a sample that
is attacked).
Given up when the loss is no longer finite or more than every other step overflows.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ..answers import Answer, no, yes
from ..findings import found, half_share
from ..site import Refused
from ..step_hooks import before_steps
from ..values import Flag
from .autocasting import autocast_roots
from .gradient_hooks import watch_gradient_hooks
from .loss_watch import LateAnswer, LossWatch
from .scaling import KEY, GradientScale

if TYPE_CHECKING:
    from ...records.report import RunReport
    from ..model.roots import Root
    from ..site import Site

ID = "precision.fp16"
TITLE = "Forward and backward in fp16, with scaled gradients"
SAFETY = "numeric"
VALUE = Flag()
ROUNDS = 2.0**-11
CONFLICTS = ("precision.bf16",)
_LOOK_EVERY = 50
_PARAMETERS = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")


def applies(report: RunReport) -> Answer:
    half = half_share(report)
    if half:
        return no(f"{half:.0%} of the results in the graph are in half precision already")
    if not found(report, "CO501", "CO502"):
        return no("the GPU was not seen to be held up by its arithmetic in float32")
    if not any(name in report.run.device for name in ("V100", "T4", "TITAN V", "RTX 20", "Quadro RTX")):
        return no("precision.bf16 needs no scaled gradients and is as fast on this GPU")
    return yes(True, "float32 products do not use the tensor cores, and this GPU has none for bf16")


def apply(site: Site, value: Any) -> None:
    torch = site.torch
    if tuple(inspect.signature(torch.autograd.backward).parameters) != _PARAMETERS:
        raise Refused(f"torch {torch.__version__} has another backward than the ones known")
    scale = GradientScale(site)
    _save_with_optimizers(site, scale)
    _follow_optimizers(site, scale)
    _hook_steps(site, scale)
    _scale_passes(site, scale)
    hooked = watch_gradient_hooks(site, lambda: scale.is_on)
    autocast_roots(site, torch.float16, lambda roots: _begin(site, scale, roots, hooked))


def _begin(site: Site, scale: GradientScale, roots: list[Root], hooked: set[str]) -> None:
    for name in hooked:
        raise Refused(f"{name} on a result would see scaled gradients")
    modules = [root.module for root in roots]
    devices = {one.device for module in modules for one in module.parameters()}
    if len(devices) != 1:
        raise Refused(f"the model is spread over {len(devices)} devices")
    if site.torch.is_anomaly_enabled():
        raise Refused("anomaly mode is on: it takes an overflow for a fault")
    for part in (part for module in modules for part in module.modules()):
        name = type(part).__name__
        if part._backward_hooks or part._backward_pre_hooks:
            raise Refused(f"a hook on {name} would see scaled gradients")
        if getattr(part, "sparse", False):
            raise Refused(f"{name} has sparse gradients")
        for one in part._parameters.values():
            if one is not None and (one._backward_hooks or getattr(one, "_post_accumulate_grad_hooks", None)):
                raise Refused(f"a hook on a parameter of {name} would see scaled gradients")
    scale.begin(modules, next(iter(devices)))
    _watch_skipped(site, scale)


def _scale_passes(site: Site, scale: GradientScale) -> None:
    loss = LossWatch(site)

    def make(original: Any) -> Any:
        def backward(
            tensors: Any,
            grad_tensors: Any = None,
            retain_graph: Any = None,
            create_graph: bool = False,
            grad_variables: Any = None,
            inputs: Any = None,
        ) -> Any:
            # A pass within a pass, as checkpointing makes them, goes on with scaled gradients.
            if not site.in_force or not scale.is_on or scale.is_running:
                return original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
            if create_graph:
                site.give_up("backward(create_graph=True) would go on with scaled gradients")
            site.guarded(lambda: loss.look(tensors), lambda: None)
            given = grad_tensors if grad_variables is None else grad_variables
            scaled = None
            if site.in_force:
                scaled = site.guarded(lambda: scale.scaled(tensors, given), lambda: None)
            if scaled is None:
                return original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
            scale.is_running = True
            try:
                return original(tensors, scaled, retain_graph, False, None, inputs)
            finally:
                scale.is_running = False
                scale.unscale()

        return backward

    site.replace(site.torch.autograd, "backward", make)


def _follow_optimizers(site: Site, scale: GradientScale) -> None:
    """Know each from when it is made, and when its gradients go."""

    def make_init(original: Any) -> Any:
        def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            if site.in_force:
                site.guarded(lambda: scale.meet(optimizer), lambda: None)

        return __init__

    def make_zero_grad(original: Any) -> Any:
        def zero_grad(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if site.in_force and scale.is_on:
                site.guarded(lambda: scale.settle(optimizer), lambda: None)
            return original(optimizer, *args, **kwargs)

        return zero_grad

    site.replace(site.torch.optim.Optimizer, "__init__", make_init)
    site.replace(site.torch.optim.Optimizer, "zero_grad", make_zero_grad)


def _hook_steps(site: Site, scale: GradientScale) -> None:
    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        given = [*args, *kwargs.values()]
        if any(callable(one) and one is not optimizer for one in given):
            site.refuse("optimizer.step is given a closure, which runs passes within a step")
        elif scale.is_on:
            scale.before_step(optimizer)
        else:
            scale.meet(optimizer)

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if scale.is_on:
            scale.after_step(optimizer)

    before_steps(site, before, after)


def _save_with_optimizers(site: Site, scale: GradientScale) -> None:
    def make_state_dict(original: Any) -> Any:
        def state_dict(optimizer: Any) -> Any:
            state = original(optimizer)
            if site.in_force and scale.is_on:
                state[KEY] = scale.state()
            return state

        return state_dict

    def make_load(original: Any) -> Any:
        def load_state_dict(optimizer: Any, state_dict: Any) -> Any:
            if site.in_force and isinstance(state_dict, dict):
                site.guarded(lambda: scale.resume(state_dict.get(KEY)), lambda: None)
            return original(optimizer, state_dict)

        return load_state_dict

    site.replace(site.torch.optim.Optimizer, "state_dict", make_state_dict)
    site.replace(site.torch.optim.Optimizer, "load_state_dict", make_load)


def _watch_skipped(site: Site, scale: GradientScale) -> None:
    answer = LateAnswer(site.torch)
    counts = [0.0]

    def step(number: int) -> None:
        skipped = answer.take()
        if skipped is not None:
            if skipped - counts[0] > _LOOK_EVERY / 2:
                site.give_up(f"{skipped - counts[0]:.0f} of {_LOOK_EVERY} steps overflowed")
                return
            counts[0] = skipped
            site.tell(skipped_steps=int(skipped))
        if number % _LOOK_EVERY == 0 and not answer.is_awaited:
            answer.send(scale.skipped)

    site.each_step(step)
