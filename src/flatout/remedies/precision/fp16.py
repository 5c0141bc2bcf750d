"""Computes forward and backward of the model in fp16, for GPUs that have no bf16.

As `precision.bf16`, with fp16's narrower range: gradients are scaled up while they are in fp16 and
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
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from ...records.message import message
from ..answers import Answer, Report, half_share, has_finding, no, yes
from ..model.module_calls import has_gradient_hook
from ..model.roots import Root, graph_nodes, tensors_in
from ..site import Refused, Site
from ..torch_hooks import hook_steps, parameters_of
from ..traits import Bottleneck, Traits, WarmUp
from .bf16 import LateAnswer, LossWatch, autocast_roots

ID = "precision.fp16"
TITLE = "Forward and backward in fp16, with scaled gradients"
SAFETY = "numeric"
TRAITS = Traits(Bottleneck.DEVICE, warm_up=WarmUp(20), rounding=2.0**-11)
CONFLICTS = ("precision.bf16",)
_CHECK_SKIPPED_EVERY = 50
_PARAMETERS = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")


def applies(report: Report) -> Answer:
    half = half_share(report)
    if half:
        return no(message("precision.already_half", share=half))
    if not has_finding(report, "CO501", "CO502"):
        return no(message("precision.not_bound"))
    if not any(name in report.run.device for name in ("V100", "T4", "TITAN V", "RTX 20", "Quadro RTX")):
        return no(message("fp16.bf16_as_fast"))
    return yes(True, message("fp16.no_bf16"))


def apply(site: Site, value: Any) -> None:
    torch = site.torch
    if tuple(inspect.signature(torch.autograd.backward).parameters) != _PARAMETERS:
        raise Refused(message("fp16.unknown_backward", version=torch.__version__))
    scale = GradientScale(site)
    _follow_optimizers(site, scale)
    _hook_steps(site, scale)
    _scale_passes(site, scale)
    hooked = watch_gradient_hooks(site, lambda: scale.is_on)
    autocast_roots(site, torch.float16, lambda roots: _begin(site, scale, roots, hooked))


def _begin(site: Site, scale: GradientScale, roots: list[Root], hooked: set[str]) -> None:
    for name in hooked:
        raise Refused(message("fp16.result_hook", call=name))
    modules = [root.module for root in roots]
    devices = {parameter.device for module in modules for parameter in module.parameters()}
    if len(devices) != 1:
        raise Refused(message("fp16.several_devices", devices=len(devices)))
    if site.torch.is_anomaly_enabled():
        raise Refused(message("fp16.anomaly_mode"))
    for part in (part for module in modules for part in module.modules()):
        name = type(part).__name__
        if part._backward_hooks or part._backward_pre_hooks:
            raise Refused(message("fp16.hook", module=name))
        if getattr(part, "sparse", False):
            raise Refused(message("model.sparse", module=name))
        if has_gradient_hook(part):
            raise Refused(message("fp16.parameter_hook", module=name))
    scale.begin(modules, next(iter(devices)))
    _watch_skipped(site, scale)


def _scale_passes(site: Site, scale: GradientScale) -> None:
    loss = LossWatch(site)

    def make(original: Any) -> Any:
        def backward(  # noqa: PLR0913 (as torch has it)
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
                site.give_up(message("fp16.create_graph"))
            site.guarded(lambda: loss.look(tensors))
            given = grad_tensors if grad_variables is None else grad_variables
            scaled = None
            if site.in_force:
                scaled = site.guarded(lambda: scale.scaled(tensors, given))
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
    """Know each from when it is made, when its gradients go, and the factor that is saved with its state."""

    def settle(optimizer: Any, *args: Any, **kwargs: Any) -> None:
        if scale.is_on:
            scale.settle(optimizer)

    def save(state: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        if scale.is_on:
            state[KEY] = scale.state()

    def resume(optimizer: Any, state_dict: Any) -> None:
        if isinstance(state_dict, dict):
            scale.resume(state_dict.get(KEY))

    optimizer = site.torch.optim.Optimizer
    site.after(optimizer, "__init__", lambda result, optimizer, *args, **kwargs: scale.meet(optimizer))
    site.before(optimizer, "zero_grad", settle)
    site.after(optimizer, "state_dict", save)
    site.before(optimizer, "load_state_dict", resume)


def _hook_steps(site: Site, scale: GradientScale) -> None:
    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        given = [*args, *kwargs.values()]
        if any(callable(tensor) and tensor is not optimizer for tensor in given):
            site.refuse(message("fp16.closure"))
        elif scale.is_on:
            scale.before_step(optimizer)
        else:
            scale.meet(optimizer)

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if scale.is_on:
            scale.after_step(optimizer)

    hook_steps(site, before, after)


def _watch_skipped(site: Site, scale: GradientScale) -> None:
    answer = LateAnswer(site.torch)
    counts = [0.0]

    def step(number: int) -> None:
        skipped = answer.take()
        if skipped is not None:
            if skipped - counts[0] > _CHECK_SKIPPED_EVERY / 2:
                site.give_up(message("fp16.overflows", skipped=skipped - counts[0], steps=_CHECK_SKIPPED_EVERY))
                return
            counts[0] = skipped
            site.tell(skipped_steps=int(skipped))
        if number % _CHECK_SKIPPED_EVERY == 0 and not answer.is_awaited:
            answer.send(scale.skipped)

    site.each_step(step)


# Gradients are scaled while they are in fp16, and nowhere else, as by a GradScaler from outside. Small gradients
# vanish in fp16, so a backward pass runs on a multiple of the loss. The factor is removed before `backward` returns:
# between two passes every `.grad` holds the true gradient, whatever the script does with it. The factor is a power of
# two, so it rounds nothing. A step whose gradients overflowed runs without gradients: hooks, schedulers and counters
# see it, weights and optimizer state do not change. Then the factor is halved; after many good steps it is doubled.

# As torch.amp.GradScaler has them, but for the first: with its 65536 most trainings overflow a few times at the start,
# and a script that looks at its gradients would see that.
_FIRST_SCALE, _GROWTH, _BACKOFF, _GROWTH_EVERY = 4096.0, 2.0, 0.5, 2000
KEY = "flatout_gradient_scale"
_LOOK_FIRST, _LOOK_EVERY = 3, 200


class GradientScale:
    """The factor, how long it has been good, and which optimizer's gradients overflowed since its last step."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._torch = site.torch
        self.skipped: Any = None  # steps so far, on the device
        self._scale: Any = None
        self._good_steps: Any = None
        self._resumed: dict[str, Any] | None = None
        self._modules: list[weakref.ref[Any]] = []
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._overflowed: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        # Those whose last overflow has been thought over.
        self._counted: weakref.WeakSet[Any] = weakref.WeakSet()
        # Of tensors that no optimizer holds yet.
        self._overflowed_elsewhere: Any = None
        # Of steps since the factor was last thought over.
        self._outcomes: list[Any] = []
        self._put_aside: list[tuple[Any, Any]] = []
        self._passes = 0
        self.is_running = False

    def meet(self, optimizer: Any) -> None:
        """As soon as it is made: the first gradients of a second model must not stay scaled."""
        if optimizer not in self._optimizers:
            self._optimizers.add(optimizer)
            self._passes = 0

    def begin(self, modules: list[Any], device: Any) -> None:
        torch, resumed = self._torch, self._resumed or {}
        self._modules = [weakref.ref(module) for module in modules]
        self._scale = torch.full((), float(resumed.get("scale", _FIRST_SCALE)), device=device)
        self._good_steps = torch.full((), int(resumed.get("good_steps", 0)), dtype=torch.int32, device=device)
        self._overflowed_elsewhere = torch.zeros((), device=device)
        self.skipped = torch.zeros((), device=device)

    @property
    def is_on(self) -> bool:
        return self._scale is not None

    def state(self) -> dict[str, Any]:
        self._think_over()
        return {"scale": float(self._scale), "good_steps": int(self._good_steps)}

    def resume(self, state: Any) -> None:
        if isinstance(state, dict) and float(state.get("scale", 0.0)) > 0:
            self._resumed = state

    def _parameters(self) -> list[tuple[Any, list[Any]]]:
        """All tensors that gradients are scaled of, each once: an optimizer's, then those of the roots beside."""
        seen: set[int] = set()
        parts: list[tuple[Any, list[Any]]] = []
        for optimizer in list(self._optimizers):
            own = [parameter for parameter in parameters_of(optimizer) if id(parameter) not in seen]
            seen.update(map(id, own))
            parts.append((optimizer, own))
        modules = [module for module in (reference() for reference in self._modules) if module is not None]
        beside = {
            id(parameter): parameter
            for module in modules
            for parameter in module.parameters()
            if id(parameter) not in seen
        }
        return [*parts, (None, list(beside.values()))]

    def scaled(self, tensors: Any, gradients: Any) -> Any:
        """What to begin this pass with, or None where nothing is to be scaled. Scales what was accumulated so far."""
        torch = self._torch
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        given = [None] * len(roots) if gradients is None else list(tensors_in(torch, gradients))
        if len(given) != len(roots):
            return None  # torch says what is wrong with it
        if any(root.numel() != 1 and tensor is None for root, tensor in zip(roots, given, strict=True)):
            return None
        self._passes += 1
        if (self._passes <= _LOOK_FIRST or self._passes % _LOOK_EVERY == 0) and self._reaches_others(roots):
            self._site.give_up(message("fp16.other_tensors"))
            return None
        parameters = self._parameters()
        for optimizer, part in parameters:
            if optimizer is not None and (optimizer in self._counted or all(item.grad is None for item in part)):
                self.settle(optimizer)
        self._think_over()
        scale = self._scale
        scaled = [
            scale.to(root.device, root.dtype).reshape(root.shape)
            if tensor is None
            else tensor * scale.to(tensor.device, tensor.dtype)
            for root, tensor in zip(roots, given, strict=True)
        ]
        accumulated = [item.grad for _, part in parameters for item in part if item.grad is not None]
        if accumulated:
            torch._foreach_mul_(accumulated, scale)
        return scaled[0] if isinstance(tensors, torch.Tensor) else scaled

    def unscale(self) -> None:
        """After a pass: gradients as they are, and which of them overflowed."""
        torch = self._torch
        inverse = self._scale.double().reciprocal().float()
        with torch.no_grad():
            for optimizer, part in self._parameters():
                gradients = [item.grad for item in part if item.grad is not None]
                if not gradients:
                    continue
                if optimizer is None:
                    flag = self._overflowed_elsewhere
                else:
                    flag = self._overflowed.setdefault(optimizer, torch.zeros_like(self._scale))
                torch._amp_foreach_non_finite_check_and_unscale_(gradients, flag, inverse)

    def settle(self, optimizer: Any) -> None:
        """Its gradients are gone, with a step or without one: a script may leave out a step by itself."""
        overflowed = self._overflowed.pop(optimizer, None)
        if overflowed is not None and optimizer not in self._counted:
            self._outcomes.append(overflowed)
        self._counted.discard(optimizer)

    def _overflow_of(self, optimizer: Any) -> Any:
        """Of its tensors, whichever optimizer they were looked at with: a script may have made a second one."""
        own = set(map(id, parameters_of(optimizer)))
        looked_at_with = [other for other, part in self._parameters() if any(id(item) in own for item in part)]
        flags = [self._overflowed_elsewhere if item is None else self._overflowed.get(item) for item in looked_at_with]
        self._counted.update(item for item in looked_at_with if item is not None and item in self._overflowed)
        if None in looked_at_with:
            self._overflowed_elsewhere = self._torch.zeros_like(self._scale)
        known = [flag for flag in flags if flag is not None]
        return self._torch.stack(known).amax() if known else None

    def before_step(self, optimizer: Any) -> None:
        overflowed = self._overflow_of(optimizer)
        self.meet(optimizer)
        if overflowed is None:
            return
        self._outcomes.append(overflowed)
        self.skipped += overflowed
        if _takes_flag(optimizer):
            optimizer.found_inf = overflowed
        elif overflowed.item():
            held = [parameter for parameter in parameters_of(optimizer) if parameter.grad is not None]
            self._put_aside = [(tensor, tensor.grad) for tensor in held]
            for tensor in held:
                tensor.grad = None

    def after_step(self, optimizer: Any) -> None:
        optimizer.__dict__.pop("found_inf", None)
        for tensor, gradient in self._put_aside:
            tensor.grad = gradient
        self._put_aside = []

    def _think_over(self) -> None:
        """Halve or double the factor by how the last steps went, on the device."""
        if not self._outcomes:
            return
        torch = self._torch
        outcome = torch.stack(self._outcomes).amax()
        torch._amp_update_scale_(self._scale, self._good_steps, outcome, _GROWTH, _BACKOFF, _GROWTH_EVERY)
        self._outcomes.clear()

    def _reaches_others(self, roots: list[Any]) -> bool:
        known = {id(item) for _, part in self._parameters() for item in part}
        leaves = [root for root in roots if root.grad_fn is None]
        nodes = graph_nodes([root.grad_fn for root in roots if root.grad_fn is not None])
        reached = [node.variable for node in nodes if hasattr(node, "variable")]
        return any(id(leaf) not in known for leaf in leaves + reached)


def _takes_flag(optimizer: Any) -> bool:
    """A fused kernel reads on the device whether to do nothing: the host need not wait for the answer."""
    is_torchs = type(optimizer).__module__.startswith("torch.optim.")
    return is_torchs and all(group.get("fused") for group in optimizer.param_groups)


# Hooks through which the script would see or change a gradient during a backward pass.

_OF_TENSORS = ("register_hook", "retain_grad", "register_post_accumulate_grad_hook")
_OF_MODULES = ("register_full_backward_hook", "register_full_backward_pre_hook", "register_backward_hook")


def watch_gradient_hooks(site: Site, is_on: Callable[[], bool]) -> set[str]:
    """Give the remedy up at such a call while it `is_on`. Before that, the names of such calls on results gather here.

    Parameters and modules remember their hooks themselves.
    """
    seen: set[str] = set()

    def look(name: str, owner: Any, *args: Any, **kwargs: Any) -> None:
        if is_on():
            site.give_up(message("fp16.sees_scaled", call=name))
        elif getattr(owner, "grad_fn", None) is not None:
            seen.add(name)

    torch = site.torch
    for owner, names in ((torch.Tensor, _OF_TENSORS), (torch.nn.Module, _OF_MODULES)):
        for name in names:
            if hasattr(owner, name):
                site.before(owner, name, partial(look, name))
    return seen
