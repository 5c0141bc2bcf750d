"""Runs and code that have SY302, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import LineCost, SyncSite
from tests.cases.code import SourceCase, cases_in
from tests.cases.evidence import HERE, Case, on_gpu, run

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
_step = cases_in(_LOOP)
SOURCE_CASES = (
    SourceCase("finds it in a loss that the step calls", _IN_A_LOSS),
    _step("finds it when a mask picks elements", "error = error[y > 0]  # found"),
    _step("finds it when a mask has a name", "keep = (y > 0) & (y < 9)", "error = error[:, keep]  # found"),
    _step("finds it when a mask takes a tensor", "error[y > 0] = output[0]  # found"),
    _step(
        "finds it when a mask is made of truths of the host",
        "keep = torch.tensor([one is not None for one in batch['next']], device=device, dtype=torch.bool)",
        "error[keep] = output[0]  # found",
    ),
    _step("finds it when positions are asked for", "at = torch.where(y > 0)  # found"),
    _step("finds it when classes are list_sites", "classes = torch.unique(y)  # found"),
    _step("finds it when elements are selected", "error = error.masked_select(y.ge(1))  # found"),
    _step("finds it when a branch hangs on a tensor", "if y.sum() > 0:  # found", "    error = error * 2"),
    _step("finds it when a branch in one line does", "scale = 2.0 if (y == 1).any() else 1.0  # found"),
    _step("finds it when a tensor says how large", "at = torch.arange(lengths.max(), device=device)  # found"),
    _step("finds it when a tensor says where to cut", "longest = lengths.max()", "error = error[:, :longest]  # found"),
    _step("finds it when rows are repeated", "error = error.repeat_interleave(lengths, dim=0)  # found"),
    _step("finds it when numbers become a tensor", "w = torch.tensor([y.sum(), error.max()])  # found"),
    _step("quiet when a mask weighs", "error = (error * (y > 0)).sum() / (y > 0).sum()"),
    _step("quiet when a mask is filled with a number", "error[y > 0] = 0.0", "error = error.masked_fill(y > 0, 0.0)"),
    _step("quiet when positions are known", "error = error[:, 3:]", "error = error[torch.arange(3)]"),
    _step("quiet when both branches are computed", "error = torch.where(y > 0, error, 0.0)"),
    _step("quiet when it is done now and then", "if step % 100 == 0:", "    classes = torch.unique(y)"),
    _step("quiet when the mask is on the host", 'many = batch["y"][batch["y"] > 0]'),
    _step("quiet when rows are repeated equally", "error = error.repeat_interleave(4, dim=0)"),
    _step("quiet when a number of the batch is asked", "if x.shape[0] > 3:", "    error = error[: len(x)]"),
    SourceCase(
        "quiet when no device is in sight",
        _IN_A_LOSS.replace("device", "size")
        .replace("  # found", "")
        .replace("x.to(size)", "x")
        .replace("y.to(size)", "y"),
    ),
)
