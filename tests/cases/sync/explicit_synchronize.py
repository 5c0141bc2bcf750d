"""Runs and code that have SY303, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import SyncSite
from tests.cases.code import SourceCase
from tests.cases.evidence import HERE, Case, on_gpu, run

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
