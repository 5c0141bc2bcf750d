"""A part of the step is timed while the GPU is still working on it.

What it is: the clock is read before and after forward, backward or the optimizer's step, without a sync between. These
calls return when their work is queued, so the time is that of the launches.

Why the GPU idles: it need not; but the figures point at the wrong part. The work of one part is waited for in another:
the first that reads a result (`loss.item()`) seems to take the time of all.

How it shows in source: two readings of the clock in one training step on a GPU, GPU work between them, but no
synchronize, event or reading of a result; not where the whole step is timed and nothing in it waits.

The fix: `torch.cuda.Event(enable_timing=True)` recorded before and after, `elapsed_time` asked for some steps later;
or, while searching only, `torch.cuda.synchronize()` before each reading. `flatout run` does without either.

What to expect: nothing gets faster; the figures are right. A synchronize that is left in costs time.

When it is fine: the launches are what is to be measured.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from flatout.problems.found import FoundInSource
from flatout.problems.measuring.clocks import Interval, find_intervals
from flatout.records.message import message
from flatout.records.source import Related
from flatout.source.code import Code
from flatout.source.syntax.nodes import LOOPS, called_name, dotted_name, root_name
from flatout.source.training.regions import Region
from flatout.source.training.tensors import Tensors

CODE = "MS002"


# Times within a step that end while the device is still at work on what they should measure.

# Wait for the device, or use its own clock.
_WAITING = {
    "item", "tolist", "cpu", "numpy", "synchronize", "elapsed_time", "record", "barrier", "wait", "wait_stream",
    "nonzero", "mark_step", "block_until_ready", "print", "float", "all_gather_object", "Event",
}  # fmt: skip
# Look at the gradients, or may, before they go on: a gradient scaler reads whether there was an overflow.
_LOOKING = re.compile(r"scaler|accelerator|fabric|engine|deepspeed|timer|meter|log|metric|profil", re.I)
_LAUNCHING = {"backward", "step", "zero_grad", "clip_grad_norm_", "clip_grad_value_", "to", "cuda", "train", "append"}


def find_unsynced(code: Code) -> Iterator[Interval]:
    waits = _waits_by_region(code)
    for region in code.training.regions:
        if "cuda" not in region.module.text and "cuda" not in region.root.module.text:
            continue
        for interval in find_intervals(region):
            tensors = code.tensors.of(region)
            if not _works(interval.inside, tensors, region, code) or any(
                isinstance(node, LOOPS) for node in interval.inside
            ):
                continue
            if _may_wait(interval, waits, tensors, code):
                continue
            # All of the step's work without a wait: the launches of the next steps wait then, and the mean is right.
            inside = {id(node) for node in interval.inside}
            rest = [point.node for point in region.main_path() if id(point.node) not in inside]
            if _works(rest, tensors, region, code) or any(sync.region.root is region.root for sync in code.syncs):
                yield interval


def _works(nodes: Iterable[ast.AST], tensors: Tensors, region: Region, code: Code) -> bool:
    """Does something here launch a forward, a backward or an optimizer's step?"""
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = called_name(node)
        if name in ("backward", "step") and not _LOOKING.search(root_name(node.func)):
            return True
        if tensors.of(node) == "graph" and name not in _LAUNCHING and not dotted_name(node.func).startswith("torch."):
            return True
        if any(code.training.effects(callee) for callee in code.project.resolve(node, region.function)):
            return True
    return False


def _waits_by_region(code: Code) -> dict[int, set[int]]:
    """The nodes of each region that wait, and its calls of what does."""
    found: dict[int, set[int]] = {}
    for sync in code.syncs:
        found.setdefault(id(sync.region), set()).add(id(sync.node))
        region: Region = sync.region
        while region.call_site is not None:
            found.setdefault(id(region.call_site.caller), set()).add(id(region.call_site.call))
            region = region.call_site.caller
    return found


def _may_wait(interval: Interval, waits: dict[int, set[int]], tensors: Tensors, code: Code) -> bool:
    """Does the host wait for the device before the clock is read again, or can that not be told?"""
    known = waits.get(id(interval.region), set())
    return any(
        id(node) in known or (isinstance(node, ast.Call) and _call_may_wait(node, interval, tensors, code))
        for node in interval.inside
    )


def _call_may_wait(call: ast.Call, interval: Interval, tensors: Tensors, code: Code) -> bool:
    name = called_name(call)
    if name in _WAITING or _LOOKING.search(dotted_name(call.func)):
        return True
    callees = code.project.resolve(call, interval.region.function)
    if callees:
        return any(called_name(inner) in _WAITING - {"print", "float"} for callee in callees for inner in callee.calls)
    if name in _LAUNCHING or tensors.is_on_device(call):
        return False
    # Something that is not known gets a tensor: it may do anything with it.
    given = (*call.args, *(part.value for part in call.keywords))
    return any(tensors.is_on_device(part) for part in given)


def in_source(code: Code) -> Iterator[FoundInSource]:
    seen: set[tuple[str, int]] = set()
    for interval in find_unsynced(code):
        place = interval.region.module.place(interval.ends)
        if (place.file, place.line) in seen:
            continue
        seen.add((place.file, place.line))
        yield FoundInSource(
            place=place,
            cause=message("ms002.source_cause"),
            change=message("ms002.source_change"),
            severity="low",
            related=(Related(interval.region.module.place(interval.begins), message("related.clock_starts")),),
        )
