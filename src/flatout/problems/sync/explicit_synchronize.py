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

from flatout.problems.cases import HERE, Case, SourceCase, on_gpu, run
from flatout.problems.found import FoundInRun, FoundInSource, step_of
from flatout.problems.sync.waits import EXPLICIT, report_waits, sites_of, timed_ms
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.report import SyncSite
from flatout.records.source import Fix
from flatout.source.code import Code, call_path
from flatout.source.flow.guards import ProgramPoint
from flatout.source.syntax.edits import remove_statement
from flatout.source.syntax.nodes import dotted_name, short_text
from flatout.source.training.regions import Region

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
    evidence: dict[str, float | int | str] = {
        "synchronize_per_step": round(sum(site.per_step for site in sites), 2),
        "sync_ms_per_step": round(wait_ms, 2),
    }
    yield from report_waits(run, "sy303", sites, wait_ms, evidence)


_MS = {"data": 1.0, "forward": 30.0, "backward": 20.0, "optimizer": 9.0, "sync": 39.0, "other": 1.0}
_CALL = SyncSite(HERE, "train", "synchronize", 3.0, 39.0)
_NOW_AND_THEN = SyncSite(HERE, "train", "synchronize", 0.02, 0.5)
CASES = (
    Case(
        "finds it when a timer synchronizes",
        run(gpu=on_gpu(util_mean=60.0, drained_share=0.7), ms=_MS, syncs=(_CALL,)),
        found=True,
    ),
    Case(
        "quiet when the device is busy all the same",
        run(gpu=on_gpu(drained_share=0.0), ms=_MS, syncs=(_CALL,)),
        found=False,
    ),
    Case(
        "quiet when it happens once in fifty steps",
        run(gpu=on_gpu(util_mean=60.0, drained_share=0.7), ms={**_MS, "sync": 0.5}, syncs=(_NOW_AND_THEN,)),
        found=False,
    ),
)


# Horovod's optimizer waits for the gradients of other ranks.
_OF_RANKS = re.compile(r"optim", re.I)


def in_source(code: Code) -> Iterator[FoundInSource]:
    for region, point, call in code.calls_each_step("synchronize"):
        if _OF_RANKS.search(dotted_name(call.func)):
            continue
        yield FoundInSource(
            place=region.module.place(call),
            cause=message("sy303.source_cause", code=short_text(call, 40), step=step_of(region)),
            change=message("sy303.source_change"),
            related=call_path(region),
            fix=_fix(region, point, call),
        )


def _fix(region: Region, point: ProgramPoint, call: ast.Call) -> Fix | None:
    """Only where nothing near it can need the wait: no clock, no stream, no copy that is read later."""
    statement = point.statement
    if (
        not isinstance(statement, ast.Expr)
        or statement.value is not call
        or not _WHOLE_DEVICE.search(dotted_name(call.func))
    ):
        return None
    if _NEEDS_IT.search(ast.unparse(region.function.node)):
        return None
    edit = remove_statement(region.module, statement)
    return None if edit is None else Fix(message("fix.delete_call"), (edit,), is_safe=False)


_TIMED = """
def step(batch):
    torch.cuda.synchronize()  # found
    began = time.time()
    model(batch).backward()
    optimizer.step()

def train(loader):
    for batch in loader:
        step(batch)
"""
SOURCE_CASES = (
    SourceCase("finds it in a step that is timed", _TIMED),
    SourceCase("finds it where nobody looks at a clock", _TIMED.replace("    began = time.time()\n", "")),
    SourceCase(
        "quiet when it is done now and then",
        """
for i, batch in enumerate(loader):
    model(batch).backward()
    optimizer.step()
    if i % 100 == 0:
        torch.cuda.synchronize()
""",
    ),
    SourceCase(
        "quiet when it is before and after the loop",
        """
torch.cuda.synchronize()
for batch in loader:
    model(batch).backward()
    optimizer.step()
torch.cuda.synchronize()
""",
    ),
)
