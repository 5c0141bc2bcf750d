"""Many small tensors are copied one by one.

What it is: a batch of many little tensors, or constants made on the host in each step (`torch.tensor(x).to(device)`,
`torch.tensor(x, device=device)` in a loop), each with a copy of its own.

Why the GPU idles: each copy from pageable memory waits for its turn in the device's queue, however small it is, and
costs the host some ten microseconds besides.

How it shows in a run: many copies a step of a few kilobytes, and their time in `h2d`. All are counted; of more than a
few dozen in a row from one line some are timed, and stand for the others.

How it shows in source: in the step, a loop or comprehension over the samples of a batch with `.to(device)` or `.cuda()`
in it: `[{k: v.to(device) for k, v in t.items()} for t in targets]`, or `torch.tensor(x[i], device=device)` for each i.
A dict, or a list of a few tensors, that is a whole batch is as it should be.

The fix: make constants once, on the device (`register_buffer`); pack what belongs together into one tensor and cut it
up on the device; make masks and grids there (`torch.arange(n, device=device)`).

What to expect: a few copies instead of many; the waits go with them.

When it is fine: the device is busy all the same, or the copies take less than 1% of the step.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cases import HERE, Case, SourceCase, on_gpu, run
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.problems.prediction import by_sparing_host
from flatout.problems.transfer.copying import copies, is_small, listed
from flatout.records.evidence import Evidence
from flatout.records.report import CopySite
from flatout.source.code import Code, every_step, path_to
from flatout.source.nodes import text_of
from flatout.source.samples import copies_per_sample

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


def in_source(code: Code) -> Iterator[FoundInSource]:
    for copy in copies_per_sample(code):
        yield FoundInSource(
            place=copy.region.module.place(copy.call),
            cause=f"a copy of its own for each of `{text_of(copy.over, 40)}` in {every_step(copy.region)}",
            change="let the collate function make one padded or concatenated tensor, copy it once, cut it up there",
            related=path_to(copy.region),
        )


_STEP = """
def train(model, loader, device):
    for images, targets in loader:
        %s
        loss = sum(model(images, targets).values())
        loss.backward()
        optimizer.step()
"""
_APART = "loader = DataLoader(Scenes(), 8, num_workers=4, collate_fn=lambda batch: tuple(zip(*batch)))\n"
_PAIRS = """
for batch in loader:
    boxes = torch.stack([box.to(device) for box, _ in batch])  # found
    model(boxes).backward()
    optimizer.step()
"""
_SELDOM = "if step % 100 == 0:\n            show([{k: v.to(device) for k, v in t.items()} for t in targets])"
SOURCE_CASES = (
    SourceCase(
        "finds it when the targets are dicts",
        _STEP % "targets = [{k: v.to(device) for k, v in t.items()} for t in targets]  # found",
    ),
    SourceCase(
        "finds it in plain loops",
        _STEP % "for t in targets:\n            for k, v in t.items():\n                t[k] = v.cuda()  # found",
    ),
    SourceCase(
        "finds it when the collate function keeps samples apart",
        _APART + _STEP % "images = list(image.to(device) for image in images)  # found",
    ),
    SourceCase("finds it when the batch is a list of pairs", _PAIRS),
    SourceCase(
        "finds it when a tensor is made for each sample",
        _STEP % "sizes = [torch.tensor(targets[i], device=device) for i in range(len(targets))]  # found",
    ),
    SourceCase("quiet when the batch is a dict", _STEP % "targets = {k: v.to(device) for k, v in targets.items()}"),
    SourceCase("quiet when it is a few tensors", _STEP % "images, targets = [x.to(device) for x in (images, targets)]"),
    SourceCase("quiet when the list may be one of scales", _STEP % "targets = [t.to(device) for t in targets]"),
    SourceCase("quiet when all goes at once", _STEP % "images = images.to(device, non_blocking=True)"),
    SourceCase("quiet when it is done now and then", _STEP % _SELDOM),
)
