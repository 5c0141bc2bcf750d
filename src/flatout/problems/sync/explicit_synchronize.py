"""The training step calls torch.cuda.synchronize().

What it is: `torch.cuda.synchronize()`, or `synchronize()` of a stream or an event, in the training step, often left
over from timing.

Why the GPU idles: the host does nothing until the GPU has finished, and then the GPU does nothing until the host has
launched the next step.

How it shows in a run: time in `sync` at this line, and a GPU whose queue is found empty.

How it shows in source: `synchronize()` of torch.cuda, a stream or an event in code that every step runs.

The fix: delete it. To time parts of a step, record `torch.cuda.Event(enable_timing=True)` pairs and read them later.

What to expect: host and GPU overlap again, as far as nothing else waits.

When it is fine: before and after a measured stretch of many steps, or to hand data to another stream.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flatout.problems.found import FoundInRun, FoundInSource, fix_by_deleting, found_in_step, step_of
from flatout.problems.sync.waits import EXPLICIT, report_waits, sites_of, timed_ms
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.source.code import Code
from flatout.source.syntax.nodes import dotted_name, short_text

CODE = "SY303"
REMEDY = "sync.skip"
_WHOLE_DEVICE = re.compile(r"(^|\.)(cuda|accelerator|xpu|mps)\.synchronize$")
# Clocks, other streams, and copies to the host that are read later.
_NEEDS_IT = re.compile(
    r"time\(|perf_counter|monotonic|elapsed|[Ss]tream|record_event|CUDAGraph|copy_\(|cpu['\"]?\)?, (\w+, )?non_blocking"
)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    if not run.on_gpu:
        return
    sites = sites_of(run, EXPLICIT)
    wait_ms = timed_ms(run, sites)
    evidence = {
        "synchronize_per_step": round(sum(site.per_step for site in sites), 2),
        "sync_ms_per_step": round(wait_ms, 2),
    }
    yield from report_waits(run, "sy303", sites, wait_ms, evidence)


# Horovod's optimizer waits for the gradients of other ranks.
_OF_RANKS = re.compile(r"optim", re.I)


def in_source(code: Code) -> Iterator[FoundInSource]:
    for region, point, call in code.calls_each_step("synchronize"):
        if _OF_RANKS.search(dotted_name(call.func)):
            continue
        # Only where nothing near it can need the wait: no clock, no stream, no copy that is read later.
        is_needed = not _WHOLE_DEVICE.search(dotted_name(call.func)) or _NEEDS_IT.search(
            ast.unparse(region.function.node)
        )
        yield found_in_step(
            region,
            call,
            message("sy303.source_cause", code=short_text(call, 40), step=step_of(region)),
            message("sy303.source_change"),
            fix=None if is_needed else fix_by_deleting(region, point),
        )
