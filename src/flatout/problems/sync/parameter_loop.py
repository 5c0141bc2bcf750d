"""A loop over the parameters syncs with the GPU for each of them.

What it is: a loop over parameters or gradients that reads a value of each: NaN checks, gradient norms, weight
statistics.

Why the GPU idles: each iteration launches one or two tiny kernels and then waits for them. With a few hundred
parameters that is a few hundred round trips a step.

How it shows in a run: one line waits about as often in a step as the optimizer has parameters, or a multiple of it.

How it shows in source: a loop over `parameters()` in the step that reads a value of each.

The fix: one result for all. Norm: `torch.nn.utils.get_total_norm(grads)` or `torch._foreach_norm(grads)`, then one
read. NaN: `torch.isfinite(total_norm)`, read every hundred steps; a gradient scaler checks already.

What to expect: the loop's time goes, both launches and waits.

When it is fine: once in many steps, or in a debug run.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, LessHost, NoSync
from flatout.problems.found import FoundInRun, FoundInSource, found_in_step, step_of
from flatout.problems.hot_lines import ms_at, place_name
from flatout.problems.sync.waits import RESULTS, is_per_parameter, timed_ms
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.source.code import Code
from flatout.source.syntax.nodes import short_text

CODE = "SY304"
_OPS = (*RESULTS, "hidden", "nonzero")
_SAVED = 0.8


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    if not run.on_gpu:
        return
    sites = [site for site in run.report.syncs if site.op in _OPS and is_per_parameter(run, site)]
    if not sites:
        return
    places = list(dict.fromkeys(site.location for site in sites))
    launches_ms = sum(ms_at(run, place) for place in places)
    # Lines are sampled, phases are timed: the loop is within what was timed.
    loop_ms = min(timed_ms(run, sites) + launches_ms, run.phase("sync").ms + run.phase("other").ms)
    count = sum(site.per_step for site in sites)
    # Its kernels are tiny, and go with it.
    spared_ms, sync_ms = _SAVED * loop_ms, run.phase("sync").ms
    waits_ms = min(spared_ms, sync_ms)
    edits = Edits((NoSync(waits_ms, sync_ms), LessHost(spared_ms - waits_ms, "other")))
    worst = max(sites, key=lambda site: site.ms or 0.0)
    yield FoundInRun(
        location=worst.location,
        evidence={
            "syncs_per_step": round(count, 1),
            "loop_ms_per_step": round(loop_ms, 2),
            "lines": ", ".join(place_name(place) for place in places[:5]),
        },
        cause=message("sy304.cause", count=count, loop_ms=loop_ms, step_ms=run.step_ms),
        change=message("sy304.change"),
        edits=edits,
    )


def in_source(code: Code) -> Iterator[FoundInSource]:
    for sync in code.syncs:
        if not sync.over_parameters:
            continue
        cause = message("sy304.source_cause", code=short_text(sync.of, 40), step=step_of(sync.region))
        yield found_in_step(sync.region, sync.node, cause, message("sy304.source_change"), severity="high")
