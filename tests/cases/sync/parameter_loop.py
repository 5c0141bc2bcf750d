"""Runs and code that have SY304, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import LineCost, SyncSite
from tests.cases.code import SourceCase
from tests.cases.evidence import HERE, Case, live_state, on_gpu, run

_LIVE = live_state([{"class": "torch.optim.adamw.AdamW", "fused": True, "params": 180}])
_DRY = on_gpu(util_mean=50.0, drained_share=0.6)
_MS = {"data": 1.0, "forward": 30.0, "backward": 30.0, "optimizer": 8.0, "sync": 19.0, "other": 12.0}
_LOOP = SyncSite(HERE, "check", "bool", 360.0, 18.0)
_AT_LOOP = (LineCost(HERE, "check", "other", 0.1, 10.0),)
_SAMPLES = "for i in range(len(batch)):\n    n = int(points[i])\n"
CASES = (
    Case(
        "finds it when every gradient is checked twice",
        run(gpu=_DRY, ms=_MS, live=_LIVE, syncs=(_LOOP,), all_lines=_AT_LOOP),
        found=True,
    ),
    Case(
        "quiet when a few results are read",
        run(gpu=_DRY, ms=_MS, live=_LIVE, syncs=(SyncSite(HERE, "train", "item", 5.0, 18.0),)),
        found=False,
    ),
    Case(
        "quiet when the loop goes over samples",
        run(
            gpu=_DRY,
            ms=_MS,
            live=_LIVE,
            syncs=(SyncSite(HERE, "train", "int", 256.0, 18.0),),
            files={HERE.file: "\n" * 8 + _SAMPLES},
        ),
        found=False,
    ),
    Case("quiet on a CPU", run(ms=_MS, live=_LIVE, syncs=(_LOOP,), all_lines=_AT_LOOP), found=False),
)

_NORMS = """
model.to(device)
for batch in loader:
    model(batch).backward()
    total = 0.0
    for p in model.parameters():
        total += p.grad.norm(2).item() ** 2  # found
    optimizer.step()
"""
_CHECK = """
def check(model):
    for name, p in model.named_parameters():
        if torch.isnan(p.grad).any():  # found
            raise RuntimeError(name)

def train(model, loader, device):
    for batch in loader:
        model(batch.to(device)).backward()
        check(model)
        optimizer.step()
"""
SOURCE_CASES = (
    SourceCase("finds it when norms are summed one by one", _NORMS),
    SourceCase("finds it when gradients are looked at for NaN", _CHECK),
    SourceCase(
        "finds it in a comprehension",
        _NORMS.replace(
            "    total = 0.0\n    for p in model.parameters():\n        total += p.grad.norm(2).item() ** 2",
            "    total = sum(p.grad.norm(2).item() ** 2 for p in model.parameters())",
        ),
    ),
    SourceCase(
        "quiet when one norm is made of all",
        _NORMS.replace("        total += p.grad.norm(2).item() ** 2  # found", "        p.grad.mul_(0.5)"),
    ),
    SourceCase(
        "quiet when it is done every hundred steps",
        _CHECK.replace("        check(model)", "        if step % 100 == 0:\n            check(model)").replace(
            "  # found", ""
        ),
    ),
)
