"""Replays the forward and the backward pass of a small model as CUDA graphs: one launch each for hundreds.

The steps before are timed. Then calls of equal form are watched; if they draw no random numbers on the host and leave
nothing behind on the model, both passes are recorded and a replay is compared with the call itself, results, gradients
and buffers. From then on training calls of this form are replayed: dropout draws the numbers it would have drawn,
running statistics move as before, results and gradients are copies that a script may keep. Everything else goes
operation by operation: evaluation, calls without gradients, other shapes, a second call before the first was
differentiated. At every call it is checked that nothing changed that the recording takes for granted (values on the
modules and among globals, weights frozen, replaced or moved, hooks); what stays changed ends it. Replays are compared
with the call itself now and then, and a model that is not quicker so goes back.

The same kernels run; memory for their workspaces and, under autocast, casts of weights that are used twice may differ:
other rounding at most. The record says whether the first replay was identical.

Refused on a CPU, for compiled, scripted or wrapped models and several processes, with hooks, parametrized, recurrent or
sparse layers, results that are not tensors in plain containers, too little free memory, and where the host waits for
the device within the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..answers import Answer, no, yes
from ..findings import found, on_gpu, share_of_training, torch_state
from ..model.hooks import check_hooks
from ..model.instance_calls import replace_call
from ..model.roots import find_roots
from ..site import Refused
from ..values import Flag
from .graphs_call import GraphedCall
from .graphs_tape import CudaTapes
from .graphs_worth import Worth

if TYPE_CHECKING:
    from ...records.report import RunReport
    from ..model.roots import Root
    from ..site import Site

ID = "graphs.model"
TITLE = "Forward and backward replayed as CUDA graphs"
SAFETY = "numeric"
VALUE = Flag()
CONFLICTS = ("compile.model", "memory.checkpointing")
ANSWERS = ("HO401",)
_MOSTLY, _BUSY, _AT_WORK, _DRY = 0.7, 0.8, 0.5, 0.6


def applies(report: RunReport) -> Answer:
    if not on_gpu(report):
        return no("it ran on the CPU, and CUDA graphs are the GPU's")
    if torch_state(report).get("compiled"):
        return no("the script compiles, and compiling can replay graphs itself")
    if report.run.ranks > 1:
        return no("several processes train, and gradients are exchanged within the backward pass")
    if found(report, "CO507"):
        return no("shapes change from batch to batch, and a graph is of one shape")
    if found(report, "HO401"):
        return yes(True, "the GPU waits while the host launches many small operations")
    if _hold_each_other_up(report):
        return yes(True, "the host launches for most of each step, and the GPU still has time to spare")
    return no("launching operations was not seen to hold the GPU up")


def _hold_each_other_up(report: RunReport) -> bool:
    """Neither binds alone: what either is late by, the other waits. No finding, for what it gains cannot be told."""
    gpu = report.gpu
    if gpu is None or gpu.busy_share is None or gpu.sm_active is None:
        return False
    launches = share_of_training(report, "forward", "backward", "optimizer") > _MOSTLY
    # Large kernels keep it at work; found with nothing to do at most launches it waits all the same.
    waits = gpu.sm_active < _AT_WORK or (gpu.drained_share or 0.0) > _DRY
    return gpu.busy_share < _BUSY and waits and launches


def apply(site: Site, value: Any) -> None:
    find_roots(site, lambda roots: _measure_then_record(site, roots))


def _measure_then_record(site: Site, roots: list[Root]) -> None:
    trained = [root for root in roots if root.with_grad]
    if not trained:
        raise Refused("no module was seen to be trained in the step")
    for root in trained:
        check(site.torch, root)
    site.tell(modules=[root.name for root in trained], since_step=None)

    def begin() -> Sequence[GraphedCall]:
        calls = []
        for root in trained:
            device = next(root.module.parameters()).device
            call = GraphedCall(site, root.module, CudaTapes(site.torch, device))
            replace_call(site, root.module, call)
            calls.append(call)
        site.tell(since_step=site.step)
        return calls

    on_device = any(root.device_type == "cuda" for root in trained)
    site.each_step(Worth(site, begin, on_device).step)


def check(torch: Any, root: Root) -> None:
    """Raises Refused for a model that cannot be recorded right."""
    module, name = root.module, root.name
    if root.is_compiled:
        raise Refused("the script compiles the model itself")
    if module is not root.inner or type(module).__name__.startswith(("FullySharded", "FSDP")):
        raise Refused(f"{type(module).__name__} exchanges gradients within the backward pass")
    if root.device_type != "cuda":
        raise Refused(f"{name} runs on the {root.device_type}, and CUDA graphs are the GPU's")
    check_module(torch, module)
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        raise Refused("several processes train together")


def check_module(torch: Any, module: Any) -> None:
    """The part of it that asks no device."""
    check_hooks(torch, module)
    if len({one.device for one in (*module.parameters(), *module.buffers())}) > 1:
        raise Refused("the model is spread over several devices")
    if any(one.requires_grad for one in module.buffers()):
        raise Refused("it has buffers that are trained")
    for part in module.modules():
        name = type(part).__name__
        if hasattr(part, "parametrizations"):
            raise Refused(f"the weights of {name} are computed anew at each use")
        if isinstance(part, torch.nn.RNNBase):
            raise Refused(f"{name} moves its weights about within the call")
        if getattr(part, "sparse", False) is True:
            raise Refused(f"{name} has sparse gradients")
        if part is not module and part._compiled_call_impl is not None:
            raise Refused(f"{name} is compiled")
        for one in part._parameters.values():
            if one is not None and (one._backward_hooks or getattr(one, "_post_accumulate_grad_hooks", None)):
                raise Refused(f"a hook on a parameter of {name} sees gradients before they are whole")
