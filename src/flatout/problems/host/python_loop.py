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
`torch._foreach_*`. What depends on the sample alone belongs in the dataset. From outside, `memo.function` keeps the
results of a pure function for the next epoch.

What to expect: nearly all of the loop's time goes; its tiny kernels go with it.

When it is fine: the iterations depend on each other (a recurrence), each is heavy work of its own, or the loop takes
less than 5% of the step.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.problems.found import FoundInRun, FoundInSource, step_of
from flatout.problems.hot_lines import host_lines, lines_in, place_name
from flatout.problems.prediction import by_sparing_host, device_work_ms
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.report import LineCost, Location
from flatout.source.code import Code, call_path
from flatout.source.loops import TextLoop, find_text_loops
from flatout.source.syntax.module import parse_text
from flatout.source.syntax.nodes import bound_names, dotted_name, is_call, names_in
from flatout.source.training.regions import Region

CODE = "HO402"
REMEDY = "memo.function"
COMES_FROM = ("CA604", "HO405", "IN109", "SY304")
_WORTH = 0.05
# From this share of looks on, the device follows the host.
_DRY = 0.3
# What vectorising a loop saves of its time: more where the iterations were smaller.
_SAVED = {"elements": 0.88, "samples": 0.85, "parameters": 0.7}
_SAVED_IF_HEAVY = 0.5
# Of its forward pass: a backward that takes longer has more to go through.
_LONGEST_BACKWARD = 2.5
_SHORT_LOOP = 6
_COUNTED = ("range", "enumerate", "product")


@dataclass(frozen=True, slots=True)
class _Hot:
    loop: TextLoop
    lines: list[LineCost]

    @property
    def ms(self) -> float:
        return sum(line.ms for line in self.lines)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    if run.on_gpu and (run.drained_share or 0.0) < _DRY:
        return  # the host is ahead: what it does there costs nothing
    hot = _find_hottest_loop(run)
    if hot is None or hot.ms < _WORTH * run.step_ms:
        return
    part = hot.ms / run.step_ms
    again_ms = _again_ms(run, hot)
    saved_ms = (hot.ms + again_ms) * (_SAVED_IF_HEAVY if hot.loop.heavy else _SAVED[hot.loop.kind])
    # The device follows the host here: the loop's kernels are as large a part of its work.
    kernels_ms = part * (device_work_ms(run) or 0.0)
    method = message("ho402.gain", loop_ms=hot.ms, step_ms=run.step_ms, backward_ms=again_ms, saved_ms=saved_ms)
    gain = by_sparing_host(run, saved_ms, method, device_ms=kernels_ms)
    worst = hot.lines[0]
    # The head of a short loop, as it is random which of its lines was sampled most; else the most expensive line.
    place = worst.location
    kind = message(f"ho402.{hot.loop.kind}")
    yield FoundInRun(
        location=Location(place.file, hot.loop.first) if place.line - hot.loop.first <= _SHORT_LOOP else place,
        evidence={
            "loop_ms_per_step": round(hot.ms, 2),
            "loop_share": round(part, 3),
            "loop_backward_ms_per_step": round(again_ms, 2),
            "loop_lines": f"{hot.loop.first}-{hot.loop.last}",
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
        predicted_gain=gain,
    )


def _again_ms(run: Evidence, hot: _Hot) -> float:
    """What autograd takes for the iterations of a loop that sums up a loss, or makes a result part by part.

    As large a part of backward as the loop is of forward, if the rest of forward is too short for this backward.
    """
    forward_ms, backward_ms = run.phase("forward").ms, run.phase("backward").ms
    rest_ms = max(0.0, forward_ms - hot.ms)
    # What a forward pass fills in part by part is on the graph; targets that are computed so are not.
    is_on_graph = hot.loop.sums_up or (hot.loop.fills and hot.lines[0].function == "forward")
    if not is_on_graph or not forward_ms or backward_ms < _LONGEST_BACKWARD * rest_ms:
        return 0.0
    return backward_ms * min(1.0, hot.ms / forward_ms)


def _find_hottest_loop(run: Evidence) -> _Hot | None:
    lines = host_lines(run)
    found = []
    for file, text in run.files.items():
        here = [line for line in lines if line.location.file == file]
        if not here:
            continue
        stepping = [line for line in lines_in(run, "backward", "optimizer", "data") if line.location.file == file]
        known = [
            loop
            for loop in find_text_loops(text)
            # Not the training loop itself, told by what it calls or by lines of it that train.
            if not loop.trains
            and not any(loop.holds(line.location.line) or line.function in loop.calls for line in stepping)
            and loop.kind != "other"
        ]
        for loop in known:
            if not any(outer is not loop and outer.first <= loop.first and loop.last <= outer.last for outer in known):
                found.append(_Hot(loop, [line for line in here if _belongs(line, loop, text)]))
    return max((hot for hot in found if hot.lines and not _is_kept(run, hot)), key=lambda hot: hot.ms, default=None)


def _is_kept(run: Evidence, hot: _Hot) -> bool:
    """Its results are kept: lines are of the whole run, and the time at these is of the first epoch."""
    kept = [
        remedy
        for remedy in run.report.remedies
        if remedy.id == REMEDY and remedy.state == "applied" and remedy.live.get("hits")
    ]
    names = {name.rpartition(":")[2].rpartition(".")[2] for remedy in kept for name in str(remedy.value).split(",")}
    return hot.lines[0].function in names


def _belongs(line: LineCost, loop: TextLoop, text: str) -> bool:
    """Is the line in the loop, or in a function of the file that the loop calls?"""
    number = line.location.line
    if loop.holds(number):
        return True
    called = [function.definition for function in parse_text(text).functions if function.name in loop.calls]
    return any(plain is not None and plain.lineno <= number <= (plain.end_lineno or 0) for plain in called)


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
