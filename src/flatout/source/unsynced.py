"""Times within a step that end while the device is still at work on what they should measure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from flatout.source.clocks import Interval, intervals_in
from flatout.source.code import Code
from flatout.source.nodes import LOOPS, called_name, dotted, root_name
from flatout.source.tensors import Tensors
from flatout.source.training import Region

_ON_DEVICE = ("graph", "device")
# Wait for the device, or use its own clock.
_WAITING = {
    "item", "tolist", "cpu", "numpy", "synchronize", "elapsed_time", "record", "barrier", "wait", "wait_stream",
    "nonzero", "mark_step", "block_until_ready", "print", "float", "all_gather_object", "Event",
}  # fmt: skip
# Look at the gradients, or may, before they go on: a gradient scaler reads whether there was an overflow.
_LOOKING = re.compile(r"scaler|accelerator|fabric|engine|deepspeed|timer|meter|log|metric|profil", re.I)
_LAUNCHING = {"backward", "step", "zero_grad", "clip_grad_norm_", "clip_grad_value_", "to", "cuda", "train", "append"}


def unsynced_in(code: Code) -> Iterator[Interval]:
    waits = _waits_by_region(code)
    for region in code.training.regions:
        if "cuda" not in region.module.text and "cuda" not in region.root.module.text:
            continue
        for one in intervals_in(region):
            tensors = code.kinds.of(region)
            if not _works(one.inside, tensors, region, code) or any(isinstance(node, LOOPS) for node in one.inside):
                continue
            if _may_wait(one, waits, tensors, code) or _is_whole_step(one, region, tensors, code):
                continue
            yield one


def _works(nodes: Iterable[ast.AST], tensors: Tensors, region: Region, code: Code) -> bool:
    """Does something here launch a forward, a backward or an optimizer's step?"""
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = called_name(node)
        if name in ("backward", "step") and not _LOOKING.search(root_name(node.func)):
            return True
        if tensors.of(node) == "graph" and name not in _LAUNCHING and not dotted(node.func).startswith("torch."):
            return True
        if any(code.training.effects(callee) for callee in code.project.resolve(node, region.function)):
            return True
    return False


def _waits_by_region(code: Code) -> dict[int, set[int]]:
    """The nodes of each region that wait, and its calls of what does."""
    found: dict[int, set[int]] = {}
    for sync in code.syncs:
        found.setdefault(id(sync.region), set()).add(id(sync.node))
        one: Region = sync.region
        while one.hop is not None:
            found.setdefault(id(one.hop.caller), set()).add(id(one.hop.call))
            one = one.hop.caller
    return found


def _may_wait(one: Interval, waits: dict[int, set[int]], tensors: Tensors, code: Code) -> bool:
    """Does the host wait for the device before the clock is read again, or can that not be told?"""
    known = waits.get(id(one.region), set())
    return any(
        id(node) in known or (isinstance(node, ast.Call) and _call_may_wait(node, one, tensors, code))
        for node in one.inside
    )


def _call_may_wait(call: ast.Call, one: Interval, tensors: Tensors, code: Code) -> bool:
    name = called_name(call)
    if name in _WAITING or _LOOKING.search(dotted(call.func)):
        return True
    callees = code.project.resolve(call, one.region.function)
    if callees:
        return any(called_name(inner) in _WAITING - {"print", "float"} for callee in callees for inner in callee.calls)
    if name in _LAUNCHING or tensors.of(call) in _ON_DEVICE:
        return False
    # Something that is not known gets a tensor: it may do anything with it.
    given = (*call.args, *(part.value for part in call.keywords))
    return any(tensors.of(part) in _ON_DEVICE for part in given)


def _is_whole_step(one: Interval, region: Region, tensors: Tensors, code: Code) -> bool:
    """All of the step's work, and nothing waits: then the launches of the next steps wait, and the mean is right."""
    inside = {id(node) for node in one.inside}
    rest = [turn.node for turn in region.turns() if id(turn.node) not in inside]
    return not _works(rest, tensors, region, code) and not any(sync.region.root is region.root for sync in code.syncs)
