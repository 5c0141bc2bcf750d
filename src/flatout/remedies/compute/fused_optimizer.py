"""Updates all parameters in a few kernels: the optimizer's fused form, or the one over lists of tensors.

A fused kernel rounds once where single operations round each time: other rounding, the same training. It is decided at
an optimizer's first step, when devices and gradients are known, and again after its state was loaded. A state that is
saved does not tell of it: it goes on without this remedy as well.

Left alone: optimizers for which the script chose (`fused`, `foreach`, `capturable`, `differentiable`), classes that are
not torch's own, and parameters or gradients a fused kernel cannot take (sparse, complex, a device without one), also
where these come later.
"""

from __future__ import annotations

import weakref
from typing import Any

from ...records.message import Message, message
from ..answers import Answer, Report, has_finding, no, optimizers, ran_on_gpu, share_of_training, yes
from ..site import Site
from ..torch_hooks import hook_steps, parameters_of
from ..traits import Bottleneck, Traits

ID = "optimizer.fused"
TITLE = "One fused update for all parameters"
SAFETY = "numeric"
TRAITS = Traits(Bottleneck.DEVICE, is_switchable=True)
# With kernels for GPU and CPU since the oldest torch that is supported.
_FUSED = ("Adam", "AdamW", "SGD")
_DEVICES = ("cuda", "cpu")
# Of the training's time: from here on it is worth a try.
_WORTH = 0.04


def applies(report: Report) -> Answer:
    is_slow = has_finding(report, "HO403", "HO409")
    share = share_of_training(report, "optimizer") if ran_on_gpu(report) else 0.0
    known = optimizers(report)
    if not is_slow and (share < _WORTH or not any(map(_is_fusible, known))):
        return no(message("optimizer.short"))
    if known and all(item.get("fused") is not None or item.get("foreach") is not None for item in known):
        return no(message("optimizer.script_chooses"))
    if is_slow:
        return yes(True, message("optimizer.small_operations"))
    return yes(True, message("optimizer.share", percent=100 * share))


def _is_fusible(described: dict[str, Any]) -> bool:
    module, _, name = str(described.get("class")).rpartition(".")
    return module.startswith("torch.optim.") and name in _FUSED


def apply(site: Site, value: Any) -> None:
    forms = Forms(site)
    hook_steps(site, lambda optimizer, args, kwargs: forms.see(optimizer))
    site.undo(forms.put_back)
    site.after(site.torch.optim.Optimizer, "state_dict", forms.leave_out_form)


class Forms:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._given: weakref.WeakKeyDictionary[Any, str | None] = weakref.WeakKeyDictionary()
        # How many tensors it had at its last step, and those of them that no gradient has come to yet.
        self._known: weakref.WeakKeyDictionary[Any, tuple[int, list[Any]]] = weakref.WeakKeyDictionary()

    def leave_out_form(self, state: dict[str, Any], optimizer: Any, *args: Any, **kwargs: Any) -> None:
        form = self._given.get(optimizer)
        for group in state["param_groups"] if form is not None else ():
            group[form] = None

    def see(self, optimizer: Any) -> None:
        if optimizer not in self._given:
            kept = _why_kept(optimizer)
            form = self._given[optimizer] = _form(optimizer) if kept is None else None
            self._tell(optimizer, form if kept is None else message("optimizer.left_alone", why=kept))
        elif self._given[optimizer] is not None:
            self._look_at_newcomers(optimizer, self._given[optimizer] == "fused")
        form = self._given[optimizer]
        # A state that was loaded brings its own settings along.
        if form is not None and any(group.get(form) is None for group in optimizer.param_groups):
            self._give(optimizer, form, True)

    def _look_at_newcomers(self, optimizer: Any, is_fused: bool) -> None:
        """Parameters that were added, and first gradients: can they still be taken?"""
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        known, waiting = self._known.get(optimizer, (0, []))
        if count != known:
            waiting = parameters_of(optimizer)
            if is_fused and _form(optimizer) != "fused":
                self._leave_alone(optimizer, message("optimizer.unfusible"))
        arrived = [parameter.grad for parameter in waiting if parameter.grad is not None]
        self._known[optimizer] = count, [parameter for parameter in waiting if parameter.grad is None]
        if any(gradient.is_sparse for gradient in arrived):
            self._leave_alone(optimizer, message("optimizer.sparse"))

    def _leave_alone(self, optimizer: Any, why: Message) -> None:
        form, self._given[optimizer] = self._given[optimizer], None
        if form is not None:
            self._give(optimizer, form, None)
            self._tell(optimizer, message("optimizer.left_alone", why=why))

    def _tell(self, optimizer: Any, what: Message | str | None) -> None:
        known = self._site.live.get("optimizers")
        told = message("optimizer.told", optimizer=type(optimizer).__name__, what=what)
        self._site.tell(optimizers=[*(known if isinstance(known, list) else []), told])

    def put_back(self) -> None:
        for optimizer, form in list(self._given.items()):
            if form is not None:
                self._give(optimizer, form, None)

    def _give(self, optimizer: Any, form: str, value: bool | None) -> None:
        torch = self._site.torch
        optimizer.defaults[form] = value
        for group in optimizer.param_groups:
            group[form] = value
            for parameter in group["params"] if form == "fused" else ():
                count = optimizer.state.get(parameter, {}).get("step")
                if isinstance(count, torch.Tensor):
                    # A fused kernel counts where the parameter is, the others on the host.
                    optimizer.state[parameter]["step"] = count.to(parameter.device if value else "cpu", torch.float32)


def _form(optimizer: Any) -> str:
    tensors = parameters_of(optimizer)
    plain = all(tensor.is_floating_point() and tensor.device.type in _DEVICES for tensor in tensors)
    if type(optimizer).__name__ in _FUSED and plain and len({tensor.device.type for tensor in tensors}) == 1:
        return "fused"
    # On a GPU torch takes this form by itself.
    return "foreach"


def _why_kept(optimizer: Any) -> Message | None:
    """Why it keeps its form; None if it need not."""
    groups = optimizer.param_groups
    if not type(optimizer).__module__.startswith("torch.optim."):
        return message("optimizer.own_class")
    for name in ("fused", "foreach"):
        if any(group.get(name) is not None for group in groups):
            return message("optimizer.set_by_script", option=name)
    for name in ("differentiable", "capturable"):
        if any(group.get(name) for group in groups):
            return message("optimizer.sets", option=name)
    if any(tensor.grad is not None and tensor.grad.is_sparse for tensor in parameters_of(optimizer)):
        return message("optimizer.sparse")
    return None if "foreach" in optimizer.defaults else message("optimizer.one_form")
