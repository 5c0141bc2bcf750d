"""Runs and code that have TR202, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import CopySite
from tests.cases.code import SourceCase
from tests.cases.evidence import HERE, Case, on_gpu, run

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
