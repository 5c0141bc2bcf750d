"""Garbage is collected, or the CUDA cache emptied, in every step.

What it is: the loop calls `gc.collect()` or `torch.cuda.empty_cache()` in each step, or so many Python objects are
alive that the garbage collector's own runs take long.

Why the GPU idles: a full collection visits every live object while nothing is launched. `empty_cache` waits for the
GPU and returns its memory to the driver, and the next step allocates it again.

How it shows in a run: time in `gc`, or under a line that calls `empty_cache`.

How it shows in source: `gc.collect()` or `empty_cache()` in code that every step runs.

The fix: take the call out of the loop, or make it once an epoch. Against the collector's own runs: `gc.collect();
gc.freeze()` once before the loop exempts what is alive by then.

What to expect: that time goes; memory still falls when tensors go out of scope.

When it is fine: between epochs, or after an evaluation that needs other shapes.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, LessHost
from flatout.problems.found import FoundInRun, FoundInSource, fix_by_deleting, found_in_step, step_of
from flatout.problems.hot_lines import find_costly_loops, host_lines, lines_in, text_at
from flatout.records.evidence import Evidence
from flatout.records.message import Message, message
from flatout.source.code import Code
from flatout.source.syntax.nodes import called_name, dotted_name

CODE = "HO404"
REMEDY = "gc.defer"
COMES_FROM = ("HO407",)  # compiling makes and drops very many objects
_WORTH = 0.01
# What is given back to the driver must be asked for again in the same step, and the driver makes both wait.
_ASKED_AGAIN = 2.6
# Without a call of the script's own, freezing removes most of the collector's rounds.
_FROZEN = 0.8
_EVERY_FEW = 0.05


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    # A line that says so comes before one where the collector only happened to start.
    lines = lines_in(run, "gc")
    said = [line for line in lines if "collect" in text_at(run, line.location)]
    collecting = max(said or lines, key=lambda line: line.ms, default=None)
    asked = bool(said)
    gc_ms = run.phase("gc").ms
    if not asked:
        # What a loop over elements makes and drops goes with the loop, which is told as such (HO402).
        gc_ms = max(0.0, gc_ms - sum(hot.collected_ms for hot in find_costly_loops(run)))
    emptying = [line for line in host_lines(run) if "empty_cache" in text_at(run, line.location)] if run.on_gpu else []
    empty_ms = sum(line.ms for line in emptying)
    saved_ms = (gc_ms if asked else _FROZEN * gc_ms) + _ASKED_AGAIN * empty_ms
    # Once an epoch, say: then a short run shows a large share of what a long one does not feel.
    is_seldom = run.collecting_share is not None and run.collecting_share < _EVERY_FEW
    if saved_ms < _WORTH * run.step_ms or (asked and not empty_ms and is_seldom):
        return
    worst = emptying[0] if emptying and empty_ms > gc_ms else collecting
    yield FoundInRun(
        location=None if worst is None else worst.location,
        evidence={"gc_ms_per_step": round(gc_ms, 2), "empty_cache_ms_per_step": round(empty_ms, 2)},
        cause=_cause(run, gc_ms, empty_ms, asked),
        change=_change(empty_ms > gc_ms, asked),
        # The collector tells when it runs; only what `empty_cache` takes is known by looks.
        edits=Edits((LessHost(saved_ms, "gc", is_sampled=empty_ms > 0),)),
    )


def _cause(run: Evidence, gc_ms: float, empty_ms: float, asked: bool) -> Message:
    step_ms = run.step_ms
    collecting = message("ho404.collect" if asked else "ho404.collector", gc_ms=gc_ms, step_ms=step_ms)
    emptying = message("ho404.empty_cache", empty_ms=empty_ms, step_ms=step_ms)
    collects, empties = (ms >= _WORTH * step_ms for ms in (gc_ms, empty_ms))
    if collects != empties:
        return collecting if collects else emptying
    return message("ho404.both", gc_ms=gc_ms, empty_ms=empty_ms, step_ms=step_ms)


def _change(emptying: bool, asked: bool) -> Message:
    if emptying:
        return message("ho404.change_empty_cache")
    return message("ho404.change_collect" if asked else "ho404.change_freeze")


def in_source(code: Code) -> Iterator[FoundInSource]:
    for region, point, call in code.calls_each_step("collect", "empty_cache"):
        emptying = called_name(call) == "empty_cache"
        if not emptying and dotted_name(call.func) != "gc.collect":
            continue
        cause = "ho404.source_cause_empty_cache" if emptying else "ho404.source_cause_collect"
        yield found_in_step(
            region,
            call,
            message(cause, call=dotted_name(call.func), step=step_of(region)),
            _change(emptying, asked=True),
            # A run that barely fits into memory may need it.
            fix=fix_by_deleting(region, point),
        )
