"""A profiler records every step.

What it is: the training loop runs inside `torch.profiler.profile` or `torch.autograd.profiler.profile` without a
schedule, left there after an investigation.

Why the GPU idles: every operation is written down, with its shapes and stack if those were asked for, on the thread
that launches; what was written stays in memory until the profiler ends.

How it shows in a run: lines of the steps lie in the body of a `with` statement that opens a profiler without
`schedule`.

The fix: remove it, or record a few steps only: `profile(schedule=torch.profiler.schedule(wait=10, warmup=2, active=5,
repeat=1))` with `prof.step()` in the loop.

What to expect: a few microseconds an operation; most where operations are small. Memory no longer grows.

When it is fine: a run made to be profiled.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.problems.cases import Case, run
from flatout.problems.found import FoundInRun
from flatout.problems.host.bodies import around_training
from flatout.records.evidence import Evidence
from flatout.records.report import LineCost, Location

CODE = "HO406"
TITLE = "A profiler records every step"
_PROFILERS = ("profiler.profile", "profile", "profiler.emit_nvtx", "emit_nvtx")


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    opened = around_training(run, _opens)
    if opened is not None:
        yield _finding(run, opened)


def _finding(run: Evidence, location: Location) -> FoundInRun:
    return FoundInRun(
        severity="medium",
        location=location,
        evidence={"steps": run.report.run.steps, "step_ms": round(run.step_ms, 2)},
        cause=f"all {run.report.run.steps} steps run inside a profiler without a schedule",
        change="remove it, or give it schedule=torch.profiler.schedule(wait=10, warmup=2, active=5, repeat=1)",
        # What the operations cost without it was not measured in this run.
        predicted_gain=None,
    )


def _opens(call: ast.Call, imported: set[str]) -> bool:
    """Does this open a profiler for all that is in its body?"""
    name = ast.unparse(call.func)
    if not (name.split(".")[0] in imported or name.startswith("torch.")) or not name.endswith(_PROFILERS):
        return False
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    first = ast.unparse(call.args[0]) if call.args else ""
    # A switch that is a variable may well be off.
    is_on = given.get("enabled", "True") == "True" and (not first or first == "True")
    return "schedule" not in given and is_on


_WITH = """\
import torch

def train():
    with torch.profiler.profile(record_shapes=True) as profiler:
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
"""
_SCHEDULED = _WITH.replace("record_shapes=True", "schedule=torch.profiler.schedule(wait=1, warmup=1, active=3)")
_BACKWARD = (LineCost(Location("train.py", 7), "train", "backward", 0.5, 50.0),)
CASES = (
    Case("finds it when the loop is in a profiler", run(all_lines=_BACKWARD, files={"train.py": _WITH}), found=True),
    Case("quiet when it has a schedule", run(all_lines=_BACKWARD, files={"train.py": _SCHEDULED}), found=False),
    Case(
        "quiet when only something else is in it",
        run(
            all_lines=(LineCost(Location("train.py", 30), "train", "backward", 0.5, 50.0),),
            files={"train.py": _WITH + "\n" * 20},
        ),
        found=False,
    ),
)
