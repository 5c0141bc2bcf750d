"""Runs and code that have HO404, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Evidence
from flatout.records.report import LineCost, Location
from tests.cases.code import SourceCase
from tests.cases.evidence import HERE, Case, on_gpu, run


def _at(phase: str, ms: float) -> tuple[LineCost, ...]:
    return (LineCost(HERE, "train", phase, ms / 100, ms),)


_TARGETS = """\
def targets(points, out):
    for i in range(len(points)):
        for row in range(out.shape[0]):
            out[row] += points[i, 1] - row
    return out

for batch in loader:
    found = targets(batch, out)
    loss = criterion(model(batch), found)
"""


def _looping(loop_ms: float, collected_at: int) -> Evidence:
    """With so much time in the loop, and garbage that is collected at this line."""
    return run(
        ms={"forward": 60.0, "backward": 20.0, "gc": 20.0},
        all_lines=(
            LineCost(Location("train.py", 3), "targets", "forward", loop_ms / 100, loop_ms),
            LineCost(Location("train.py", collected_at), "targets", "gc", 0.2, 20.0),
        ),
        files={"train.py": _TARGETS},
    )


_SAYS = {(HERE.file, HERE.line): "gc.collect()"}
CASES = (
    Case(
        "finds it when the loop collects each step",
        run(
            ms={"data": 1.0, "forward": 30.0, "backward": 50.0, "gc": 19.0},
            all_lines=_at("gc", 19.0),
            source=_SAYS,
        ),
        found=True,
    ),
    Case(
        "finds it when the cache is emptied each step",
        run(
            gpu=on_gpu(util_mean=60.0, drained_share=0.5),
            ms={"data": 1.0, "forward": 30.0, "backward": 40.0, "other": 29.0},
            all_lines=_at("other", 25.0),
            source={(HERE.file, HERE.line): "torch.cuda.empty_cache()"},
        ),
        found=True,
    ),
    Case("quiet when it is a loop over elements that makes the garbage", _looping(50.0, 4), found=False),
    Case("finds it when most garbage is made beside such a loop", _looping(3.0, 8), found=True),
    Case(
        "quiet when the collector is hardly seen", run(ms={"forward": 40.0, "backward": 60.0, "gc": 0.5}), found=False
    ),
    Case(
        "quiet when a GPU with work in its queue does not notice",
        run(
            gpu=on_gpu(drained_share=0.0, device_ms={"step": 101.0}), ms={"forward": 40.0, "backward": 57.0, "gc": 3.0}
        ),
        found=False,
    ),
    Case(
        "quiet when emptying a cache on a CPU does nothing", run(all_lines=_at("other", 0.1), source=_SAYS), found=False
    ),
)

_TIDY = """
for step, batch in enumerate(loader):
    model(batch).backward()
    optimizer.step()
    gc.collect()  # found
    torch.cuda.empty_cache()  # found
"""
SOURCE_CASES = (
    SourceCase("finds it when each step tidies up", _TIDY),
    SourceCase(
        "finds it when it is all that a block does",
        _TIDY.replace("    gc.", "    if args.tidy:\n        gc.").replace("    torch.cuda.e", "        torch.cuda.e"),
    ),
    SourceCase(
        "quiet when it is done between epochs",
        "for epoch in range(3):\n    for batch in loader:\n        model(batch).backward()\n        optimizer.step()\n"
        "    gc.collect()\n    torch.cuda.empty_cache()\n",
    ),
    SourceCase(
        "quiet when it is done every thousand steps",
        _TIDY.replace("  # found", "")
        .replace("    gc.", "    if step % 1000 == 0:\n        gc.")
        .replace("    torch.cuda.e", "        torch.cuda.e"),
    ),
    SourceCase(
        "quiet when something else collects",
        _TIDY.replace("  # found", "")
        .replace("gc.collect()", "buffer.collect()")
        .replace("torch.cuda.empty_cache()", "pass"),
    ),
)
