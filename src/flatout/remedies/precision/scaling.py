"""Scales gradients while they are in fp16, and nowhere else: a GradScaler driven from outside.

Small gradients vanish in fp16, so a backward pass runs on a multiple of the loss. Here the multiple is taken out again
before `backward` returns. Between two passes every `.grad` holds the true gradient, whatever the script does with it:
clipping, logging, accumulating. The factor is a power of two, so that nothing is rounded by it.

A step whose gradients overflowed is taken without gradients: hooks, schedulers and counters see it, weights and the
optimizer's state do not change. Then the factor is halved; after many good steps it is doubled.
"""

from __future__ import annotations

import weakref
from typing import Any

from ..model.roots import graph_nodes, tensors_in
from ..site import Site

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
            own = [one for group in optimizer.param_groups for one in group["params"] if id(one) not in seen]
            seen.update(map(id, own))
            parts.append((optimizer, own))
        modules = [module for module in (reference() for reference in self._modules) if module is not None]
        beside = {id(one): one for module in modules for one in module.parameters() if id(one) not in seen}
        return [*parts, (None, list(beside.values()))]

    def scaled(self, tensors: Any, gradients: Any) -> Any:
        """What to begin this pass with, or None where nothing is to be scaled. Scales what was accumulated so far."""
        torch = self._torch
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        given = [None] * len(roots) if gradients is None else list(tensors_in(torch, gradients))
        if len(given) != len(roots):
            return None  # torch says what is wrong with it
        if any(root.numel() != 1 and one is None for root, one in zip(roots, given, strict=True)):
            return None
        self._passes += 1
        if (self._passes <= _LOOK_FIRST or self._passes % _LOOK_EVERY == 0) and self._reaches_others(roots):
            self._site.give_up("the loss gives gradients to tensors that belong to no optimizer and no module")
            return None
        parameters = self._parameters()
        for optimizer, part in parameters:
            if optimizer is not None and (optimizer in self._counted or all(one.grad is None for one in part)):
                self.settle(optimizer)
        self._think_over()
        scale = self._scale
        scaled = [
            scale.to(root.device, root.dtype).reshape(root.shape)
            if one is None
            else one * scale.to(one.device, one.dtype)
            for root, one in zip(roots, given, strict=True)
        ]
        accumulated = [one.grad for _, part in parameters for one in part if one.grad is not None]
        if accumulated:
            torch._foreach_mul_(accumulated, scale)
        return scaled[0] if isinstance(tensors, torch.Tensor) else scaled

    def unscale(self) -> None:
        """After a pass: gradients as they are, and which of them overflowed."""
        torch = self._torch
        inverse = self._scale.double().reciprocal().float()
        with torch.no_grad():
            for optimizer, part in self._parameters():
                gradients = [one.grad for one in part if one.grad is not None]
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
        own = {id(one) for group in optimizer.param_groups for one in group["params"]}
        looked_at_with = [other for other, part in self._parameters() if any(id(one) in own for one in part)]
        flags = [self._overflowed_elsewhere if one is None else self._overflowed.get(one) for one in looked_at_with]
        self._counted.update(one for one in looked_at_with if one is not None and one in self._overflowed)
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
            held = [one for group in optimizer.param_groups for one in group["params"] if one.grad is not None]
            self._put_aside = [(one, one.grad) for one in held]
            for one in held:
                one.grad = None

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
        known = {id(one) for _, part in self._parameters() for one in part}
        leaves = [one for one in roots if one.grad_fn is None]
        nodes = graph_nodes([one.grad_fn for one in roots if one.grad_fn is not None])
        reached = [node.variable for node in nodes if hasattr(node, "variable")]
        return any(id(one) not in known for one in leaves + reached)


def _takes_flag(optimizer: Any) -> bool:
    """A fused kernel reads on the device whether to do nothing: the host need not wait for the answer."""
    is_torchs = type(optimizer).__module__.startswith("torch.optim.")
    return is_torchs and all(group.get("fused") for group in optimizer.param_groups)
