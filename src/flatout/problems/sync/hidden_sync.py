"""An operation waits for the device unseen.

What it is: `x[mask]`, `nonzero`, `masked_select`, `unique`, `repeat_interleave` or a device scalar used as a size or
an index. The shape of the result is known only on the device, so the host has to wait for it.

Why the GPU idles: after the wait its queue is empty until the host has launched on.

How it shows in a run: PyTorch's own sync warnings, taken in sampled steps, name the line; the host's time is under
that line though it computes nothing there.

How it shows in source: on tensors that are certainly on a device, in code that every step runs: `x[x > 0]`,
`nonzero`, `torch.where(mask)`, `unique`, `masked_select`, `if tensor:`, `torch.arange(lengths.max())`, `x[:n]` with an
`n` of the device. `x[mask] = 0` is left alone: it fills in place and waits for nothing.

The fix: keep shapes fixed. Before: `loss = error[mask].mean()`; after: `loss = (error * mask).sum() / mask.sum()`, or
`torch.where(mask, a, b)`. Sizes and indices come from the host (`len`, `shape`), not from a tensor.

What to expect: the line costs its launches only, and the device goes on working. Other waits of the step then wait
longer, so remove them as well.

When it is fine: the device is busy all the time anyway.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cases import HERE, Case, SourceCase, on_gpu, run
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.problems.hot_lines import ms_at
from flatout.problems.prediction import by_sparing_host
from flatout.problems.sync.waits import HIDDEN, hidden_ms, listed, over_parameters, sites_of, timed_ms
from flatout.records.evidence import Evidence
from flatout.records.report import LineCost, SyncSite
from flatout.source.code import Code, every_step, path_to
from flatout.source.hidden import hidden_in
from flatout.source.nodes import text_of

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


def in_source(code: Code) -> Iterator[FoundInSource]:
    for one in hidden_in(code):
        yield FoundInSource(
            place=one.region.module.place(one.node),
            cause=f"`{text_of(one.node, 40)}` waits for the device to know {one.why}, in {every_step(one.region)}",
            change=one.instead,
            related=path_to(one.region),
        )


_LOOP = """
import torch
model = Net().to(device)
for step, batch in enumerate(loader):
    x, y, lengths = batch["x"].to(device), batch["y"].to(device), batch["lengths"].to(device)
    output = model(x)
    error = (output - y).abs()
    %s
    loss = error.mean()
    loss.backward()
    optimizer.step()
"""
_IN_A_LOSS = """
def masked_loss(output, target):
    valid = target != 255
    picked = output[valid]  # found
    positive = (target > 0).nonzero()  # found
    return F.mse_loss(picked, target[valid]) + positive.sum()  # found

def train(model, loader, device):
    for x, y in loader:
        loss = masked_loss(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
"""


def _does(name: str, *lines: str) -> SourceCase:
    return SourceCase(name, _LOOP % "\n    ".join(lines))


SOURCE_CASES = (
    SourceCase("finds it in a loss that the step calls", _IN_A_LOSS),
    _does("finds it when a mask picks elements", "error = error[y > 0]  # found"),
    _does("finds it when a mask has a name", "keep = (y > 0) & (y < 9)", "error = error[:, keep]  # found"),
    _does("finds it when a mask takes a tensor", "error[y > 0] = output[0]  # found"),
    _does(
        "finds it when a mask is made of truths of the host",
        "keep = torch.tensor([one is not None for one in batch['next']], device=device, dtype=torch.bool)",
        "error[keep] = output[0]  # found",
    ),
    _does("finds it when positions are asked for", "at = torch.where(y > 0)  # found"),
    _does("finds it when classes are listed", "classes = torch.unique(y)  # found"),
    _does("finds it when elements are selected", "error = error.masked_select(y.ge(1))  # found"),
    _does("finds it when a branch hangs on a tensor", "if y.sum() > 0:  # found", "    error = error * 2"),
    _does("finds it when a branch in one line does", "scale = 2.0 if (y == 1).any() else 1.0  # found"),
    _does("finds it when a tensor says how large", "at = torch.arange(lengths.max(), device=device)  # found"),
    _does("finds it when a tensor says where to cut", "longest = lengths.max()", "error = error[:, :longest]  # found"),
    _does("finds it when rows are repeated", "error = error.repeat_interleave(lengths, dim=0)  # found"),
    _does("finds it when numbers become a tensor", "w = torch.tensor([y.sum(), error.max()])  # found"),
    _does("quiet when a mask weighs", "error = (error * (y > 0)).sum() / (y > 0).sum()"),
    _does("quiet when a mask is filled with a number", "error[y > 0] = 0.0", "error = error.masked_fill(y > 0, 0.0)"),
    _does("quiet when positions are known", "error = error[:, 3:]", "error = error[torch.arange(3)]"),
    _does("quiet when both branches are computed", "error = torch.where(y > 0, error, 0.0)"),
    _does("quiet when it is done now and then", "if step % 100 == 0:", "    classes = torch.unique(y)"),
    _does("quiet when the mask is on the host", 'many = batch["y"][batch["y"] > 0]'),
    _does("quiet when rows are repeated equally", "error = error.repeat_interleave(4, dim=0)"),
    _does("quiet when a number of the batch is asked", "if x.shape[0] > 3:", "    error = error[: len(x)]"),
    SourceCase(
        "quiet when no device is in sight",
        _IN_A_LOSS.replace("device", "size")
        .replace("  # found", "")
        .replace("x.to(size)", "x")
        .replace("y.to(size)", "y"),
    ),
)
