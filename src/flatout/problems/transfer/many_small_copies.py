"""Many small tensors are copied one by one.

What it is: a batch of many little tensors, or constants made on the host in each step (`torch.tensor(x).to(device)`,
`torch.tensor(x, device=device)` in a loop), each with a copy of its own.

Why the GPU idles: each copy from pageable memory waits for its turn in the device's queue, however small it is, and
costs the host some ten microseconds besides.

How it shows in a run: many copies a step of a few kilobytes, and their time in `h2d`.

The fix: make constants once, on the device (`register_buffer`); pack what belongs together into one tensor and cut it
up on the device; make masks and grids there (`torch.arange(n, device=device)`).

What to expect: a few copies instead of many; the waits go with them.

When it is fine: the device is busy all the same, or the copies take less than 1% of the step.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cases import HERE, Case, on_gpu, run
from flatout.problems.found import FoundInRun
from flatout.problems.prediction import by_sparing_host
from flatout.problems.transfer.copying import copies, is_small, listed
from flatout.records.evidence import Evidence
from flatout.records.report import CopySite

CODE = "TR202"
TITLE = "Many small tensors are copied one by one"
_MANY = 8


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    sites = [site for site in copies(run) if is_small(site)]
    count = sum(site.per_step for site in sites)
    if not run.on_gpu or count < _MANY:
        return
    took_ms = min(sum(site.ms for site in sites), run.phase("h2d").ms)
    # One copy of all of it is left, at the mean cost of one.
    saved_ms = took_ms * (1 - 1 / count)
    words = f"{count:.3g} copies take {took_ms:.3g} of {run.step_ms:.3g} ms; one is left"
    gain = by_sparing_host(run, saved_ms, words)
    if gain is None:
        return
    yield FoundInRun(
        location=sites[0].location,
        evidence={
            "copies_per_step": round(count, 1),
            "h2d_ms_per_step": round(took_ms, 2),
            "bytes_each": int(sum(site.bytes_per_step for site in sites) / count),
            "lines": listed(run, sites),
        },
        cause=f"{count:.3g} copies of small tensors a step take {took_ms:.3g} of {run.step_ms:.3g} ms",
        change=f"pack them into one copy, or make them on the device: {listed(run, sites)}",
        predicted_gain=gain,
    )


_MS = {"data": 1.0, "h2d": 14.0, "forward": 36.0, "backward": 40.0, "optimizer": 8.0, "other": 1.0}
_GPU = on_gpu(util_mean=70.0, drained_share=0.4)
_BOXES = CopySite(HERE, "train", 64.0, 13.0, 64 * 400.0, 0.0, 0.0)
CASES = (
    Case("finds it when boxes go up one image at a time", run(gpu=_GPU, ms=_MS, copies=(_BOXES,)), found=True),
    Case(
        "quiet when a batch is two large tensors",
        run(gpu=_GPU, ms=_MS, copies=(CopySite(HERE, "train", 2.0, 13.0, 38.0 * 2**20, 1.0, 1.0),)),
        found=False,
    ),
    Case(
        "quiet when the device is busy all the same",
        run(gpu=on_gpu(drained_share=0.0), ms=_MS, copies=(_BOXES,)),
        found=False,
    ),
    Case(
        "quiet when the evaluation copies",
        run(gpu=_GPU, ms=_MS, copies=(CopySite(HERE, "evaluate", 64.0, 13.0, 25e3, 0.0, 0.0),)),
        found=False,
    ),
)
