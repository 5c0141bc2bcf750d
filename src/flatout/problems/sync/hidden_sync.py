"""An operation waits for the device unseen.

What it is: `x[mask]`, `nonzero`, `masked_select`, `unique`, `repeat_interleave` or a device scalar used as a size or
an index. The shape of the result is known only on the device, so the host has to wait for it.

Why the GPU idles: after the wait its queue is empty until the host has launched on.

How it shows in a run: PyTorch's own sync warnings, taken in sampled steps, name the line; the host's time is under
that line though it computes nothing there.

The fix: keep shapes fixed. Before: `loss = error[mask].mean()`; after: `loss = (error * mask).sum() / mask.sum()`, or
`torch.where(mask, a, b)`. Sizes and indices come from the host (`len`, `shape`), not from a tensor.

What to expect: the line costs its launches only, and the device goes on working. Other waits of the step then wait
longer, so remove them as well.

When it is fine: the device is busy all the time anyway.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cases import HERE, Case, on_gpu, run
from flatout.problems.found import FoundInRun
from flatout.problems.hot_lines import ms_at
from flatout.problems.prediction import by_sparing_host
from flatout.problems.sync.waits import HIDDEN, hidden_ms, listed, over_parameters, sites_of, timed_ms
from flatout.records.evidence import Evidence
from flatout.records.report import LineCost, SyncSite

CODE = "SY302"
TITLE = "An operation waits for the device unseen"
COMES_FROM = ("HO405",)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    if not run.on_gpu:
        return
    sites = [site for site in sites_of(run, HIDDEN) if not over_parameters(run, site)]
    waits_ms = hidden_ms(run, sites) + timed_ms(run, [site for site in sites if site.ms is not None])
    count = sum(site.per_step for site in sites)
    words = f"{waits_ms:.3g} of {run.step_ms:.3g} ms go by at lines that wait; then the slower of host and device binds"
    gain = by_sparing_host(run, waits_ms, words)
    if gain is None:
        return
    dearest = sorted(sites, key=lambda site: -(site.ms or ms_at(run, site.location)))
    yield FoundInRun(
        location=dearest[0].location,
        evidence={
            "hidden_syncs_per_step": round(count, 2),
            "wait_ms_per_step": round(waits_ms, 2),
            "lines": listed(run, dearest),
        },
        cause=f"{count:.3g} operations a step wait for the device to learn a shape or a value, about {waits_ms:.3g} of"
        f" {run.step_ms:.3g} ms",
        change=f"torch.where or a weighted sum instead of a mask, sizes from the host: {listed(run, dearest)}",
        predicted_gain=gain,
    )


_MASK = SyncSite(HERE, "loss", "hidden", 3.0, None)
_DRY = on_gpu(util_mean=65.0, drained_share=0.4)
_MS = {"data": 1.0, "forward": 55.0, "backward": 30.0, "optimizer": 13.0, "other": 1.0}
_AT_MASK = (LineCost(HERE, "loss", "forward", 0.3, 30.0),)
CASES = (
    Case(
        "finds it when a mask waits in the loss", run(gpu=_DRY, ms=_MS, syncs=(_MASK,), all_lines=_AT_MASK), found=True
    ),
    Case("quiet when the line takes no time", run(gpu=_DRY, ms=_MS, syncs=(_MASK,)), found=False),
    Case(
        "quiet when the device is busy all the same",
        run(gpu=on_gpu(drained_share=0.0), ms=_MS, syncs=(_MASK,), all_lines=_AT_MASK),
        found=False,
    ),
    Case("quiet on a CPU", run(ms=_MS, syncs=(_MASK,), all_lines=_AT_MASK), found=False),
)
