"""A Python loop in the step works on single elements, samples or parameters.

What it is: a `for` loop inside the training step works on single elements, samples or parameters: targets drawn cell
by cell, a loss summed sample by sample, a statistic per parameter.

Why the GPU idles: every iteration launches its own few tiny kernels. Python and the launches take microseconds each,
the kernels less, so the GPU is done before the next one is launched.

How it shows in a run: much of the host's time is in a few lines of one loop of your own code, and on a GPU the device
has little to do meanwhile.

How it shows in source: nested loops over indices in the step that write a tensor element by element.

The fix: compute all elements at once. Before: `for i in range(n): out[i] = f(x[i])`; after: `out = f(x)`. Grids come
from `torch.arange` and broadcasting, scattered writes from `index_put_` or `scatter_`, parameters from
`torch._foreach_*`. Many small modules (a head for each group) become one: their weights stacked, and `torch.baddbmm` or
`torch.func.vmap` over them. What depends on the sample alone belongs in the dataset. From outside, `memo.function`
keeps the results of a pure function for the next epoch.

What to expect: nearly all of the loop's time goes; its tiny kernels go with it.

When it is fine: the iterations depend on each other (a recurrence), each is heavy work of its own, or the loop takes
less than 5% of the step.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.model.edits import Edits, LessDevice, LessHost
from flatout.model.measured import device_work_ms
from flatout.problems.found import FoundInRun, FoundInSource, step_of
from flatout.problems.hot_lines import LOOP, HotLoop, find_costly_loops, is_of_loop, place_name
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.report import Location
from flatout.source.code import Code, call_path
from flatout.source.loops import find_text_loops
from flatout.source.syntax.nodes import bound_names, dotted_name, is_call, names_in
from flatout.source.training.regions import Region

CODE = "HO402"
REMEDY = "memo.function"
COMES_FROM = ("CA604", "HO405", "IN109", "SY304")
# Where it goes through what is printed, or gives a module all elements so far.
COMES_FROM_HERE = ("CA605", "CO520")
# From this share of looks on, the device follows the host.
_DRY = 0.3
# Of its forward pass: a backward that takes longer has more to go through.
_LONGEST_BACKWARD = 2.5
_SHORT_LOOP = 6
_COUNTED = ("range", "enumerate", "product")


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    if run.on_gpu and (run.drained_share or 0.0) < _DRY:
        return  # the host is ahead: what it does there costs nothing
    loops = (hot for hot in find_costly_loops(run) if not _is_kept(run, hot))
    hot = max(loops, key=lambda hot: hot.ms, default=None)
    if hot is None:
        return
    part = (hot.ms - hot.collected_ms) / run.step_ms
    again_ms = _again_ms(run, hot)
    own_ms = hot.ms - hot.collected_ms
    own_phase = next((line.phase for line in hot.lines if line.phase != "gc"), "forward")
    # The device follows the host here: the loop's kernels are as large a part of its work.
    kernels_ms = part * (device_work_ms(run) or 0.0)
    edits = Edits.between(
        (
            LessHost(own_ms * saved, own_phase, of_model=again_ms > 0),
            LessHost(again_ms * saved, "backward", of_model=True),
            LessHost(hot.collected_ms * saved, "gc"),
            LessDevice(kernels_ms),
        )
        for saved in (1.0 - left for left in hot.left())
    )
    worst = hot.lines[0]
    # The head of a short loop, as it is random which of its lines was sampled most; else the most expensive line.
    place = worst.location
    kind = message(f"ho402.{hot.loop.kind}")
    yield FoundInRun(
        location=Location(place.file, hot.loop.first) if place.line - hot.loop.first <= _SHORT_LOOP else place,
        evidence={
            "loop_ms_per_step": round(hot.ms, 2),
            "loop_share": round(hot.ms / run.step_ms, 3),
            "loop_backward_ms_per_step": round(again_ms, 2),
            "loop_gc_ms_per_step": round(hot.collected_ms, 2),
            LOOP: f"{hot.loop.first}-{hot.loop.last}",
            "function": worst.function,
        },
        cause=message(
            "ho402.cause",
            kind=kind,
            function=worst.function,
            line=place_name(worst.location),
            loop_ms=hot.ms,
            step_ms=run.step_ms,
        ),
        change=message("ho402.change", first=hot.loop.first, last=hot.loop.last, kind=kind),
        edits=edits,
    )


def _again_ms(run: Evidence, hot: HotLoop) -> float:
    """What autograd takes for the iterations of a loop that sums up a loss, or makes a result part by part.

    Where no window saw which operations the loop's lines made: as large a part of backward as the loop is of forward,
    if the rest of forward is too short for this backward.
    """
    file = hot.lines[0].location.file
    linked = [op for op in run.op_costs if op.location.file == file and is_of_loop(op, hot.loop, run.files[file])]
    if linked and all(op.backward_ms is not None for op in linked):
        return sum(op.backward_ms or 0.0 for op in linked)
    forward_ms, backward_ms = run.phase("forward").ms, run.phase("backward").ms
    rest_ms = max(0.0, forward_ms - hot.ms)
    # What a forward pass fills in part by part is on the graph; targets that are computed so are not.
    is_on_graph = hot.loop.sums_up or (hot.loop.fills and hot.lines[0].function == "forward")
    if not is_on_graph or not forward_ms or backward_ms < _LONGEST_BACKWARD * rest_ms:
        return 0.0
    return backward_ms * min(1.0, hot.ms / forward_ms)


def _is_kept(run: Evidence, hot: HotLoop) -> bool:
    """Its results are kept: lines are of the whole run, and the time at these is of the first epoch."""
    kept = [
        remedy
        for remedy in run.report.remedies
        if remedy.id == REMEDY and remedy.state == "applied" and remedy.live.get("hits")
    ]
    names = {name.rpartition(":")[2].rpartition(".")[2] for remedy in kept for name in str(remedy.value).split(",")}
    return hot.lines[0].function in names


def find_element_loops(code: Code) -> Iterator[tuple[Region, ast.For]]:
    """Nested loops over indices in a step that pick or write a tensor's elements by their variables; the outermost."""
    seen: set[int] = set()
    for region, point in code.each_step():
        node = point.node
        outer = [loop for loop in point.loops if isinstance(loop, ast.For) and is_call(loop.iter, *_COUNTED)]
        if len(outer) < 2 or not isinstance(node, ast.Subscript) or id(outer[0]) in seen:
            continue
        # By the innermost variable, in a loop that calls nothing heavier: each iteration is one element's.
        if not bound_names(outer[-1].target) & names_in(node.slice):
            continue
        loops = find_text_loops(region.module.text)
        if not any(loop.first == outer[0].lineno and loop.kind == "elements" for loop in loops):
            continue
        # An array in host memory, or a list: Python goes through it as fast as through anything.
        made = region.function.bindings.get(dotted_name(node.value), [])
        is_tensor = any(isinstance(value, ast.Call) and dotted_name(value.func).startswith("torch.") for value in made)
        if is_tensor or code.tensors.of(region).is_on_device(node.value):
            seen.add(id(outer[0]))
            yield region, outer[0]


def in_source(code: Code) -> Iterator[FoundInSource]:
    for region, loop in find_element_loops(code):
        yield FoundInSource(
            severity="high",
            place=region.module.at(loop.lineno, loop.col_offset + 1),
            cause=message("ho402.source_cause", step=step_of(region)),
            change=message("ho402.source_change"),
            related=call_path(region),
        )
