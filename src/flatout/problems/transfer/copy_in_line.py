"""Copies and kernels run one after the other on the same stream.

What it is: batches are pinned and copied with `non_blocking=True`, but on the compute stream. The host does not wait,
the device does: a copy and the kernels behind it run one after the other.

Why the GPU idles: its SMs are idle while the next batch comes over the bus.

How it shows in a run: the device always has work queued, and moving a step's bytes over the bus takes a large part of
it.

The fix: copy the next batch on a stream of its own while the model works on this one.

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        ahead = batch.to(device, non_blocking=True)
    ...
    torch.cuda.current_stream().wait_stream(side)
    ahead.record_stream(torch.cuda.current_stream())

What to expect: a step is the longer of copying and computing, not their sum. Fewer bytes help as well: send 8-bit data
as it is, and convert it on the device.

When it is fine: the copies are short compared with the kernels, or the device waits for the host anyway.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, LessStep
from flatout.problems.found import FoundInRun
from flatout.problems.transfer.copies import is_small, list_sites, mib_per_step, moving_ms, training_copies
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "TR206"
REMEDY = "transfer.prefetch"
COMES_FROM = ("TR205",)  # fewer bytes come first
# The bytes of a step take at least this part of it, by a bus that was not measured.
_LARGE_PART = 0.15
_NEVER_SHORT = 0.1
# A device that copies beside its kernels computes a little slower: memory is shared.
_SIDE_BY_SIDE = 1.05


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    sites = [site for site in training_copies(run) if site.pinned_share >= 0.5 and site.non_blocking_share >= 0.5]
    sites = [site for site in sites if site.location not in run.own_stream_copies and not is_small(site)]
    drained = run.drained_share
    if not run.on_gpu or not sites or drained is None or drained >= _NEVER_SHORT:
        return
    copying_ms = moving_ms(run, sum(site.bytes_per_step for site in sites))
    # More than the step has is a bus that is quicker than thought: then nothing is known.
    if not _LARGE_PART * run.step_ms <= copying_ms < 0.95 * run.step_ms:
        return
    computing_ms = run.step_ms - copying_ms
    left_ms = _SIDE_BY_SIDE * max(copying_ms, computing_ms)
    likely_ms, best_ms = run.step_ms - left_ms, run.step_ms - max(copying_ms, computing_ms)
    edits = Edits((LessStep(likely_ms),), worst=(LessStep(0.5 * likely_ms),), best=(LessStep(best_ms),))
    mebibytes = mib_per_step(sites)
    yield FoundInRun(
        location=sites[0].location,
        evidence={
            "mib_per_step": round(mebibytes, 2),
            "copying_ms_per_step": round(copying_ms, 2),
            "drained_share": round(drained, 3),
            "lines": list_sites(sites),
        },
        cause=message("tr206.cause", mib=mebibytes, copying_ms=copying_ms, step_ms=run.step_ms),
        change=message("tr206.change"),
        edits=edits,
    )
