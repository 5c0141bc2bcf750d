"""A profiler records every step.

What it is: the training loop runs inside `torch.profiler.profile` or `torch.autograd.profiler.profile` without a
schedule, left there after an investigation.

Why the GPU idles: every operation is written down, with its shapes and stack if those were asked for, on the thread
that launches; what was written stays in memory until the profiler ends.

How it shows in a run: lines of the steps lie in the body of a `with` statement that opens a profiler without
`schedule`.

How it shows in source: `torch.profiler.profile`, `torch.autograd.profiler.profile`, `emit_nvtx` or `cProfile.Profile`
around a training loop, without a schedule and behind no flag; `Trainer(profiler="pytorch")` of Lightning.

The fix: remove it, or record a few steps only: `profile(schedule=torch.profiler.schedule(wait=10, warmup=2, active=5,
repeat=1))` with `prof.step()` in the loop.

What to expect: a few microseconds an operation; most where operations are small. Memory no longer grows.

When it is fine: a run made to be profiled.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.problems.cases import Case, SourceCase, run
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.problems.host.bodies import around_training
from flatout.records.evidence import Evidence
from flatout.records.report import LineCost, Location
from flatout.source.code import Code
from flatout.source.profiling import profiled_in

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


def in_source(code: Code) -> Iterator[FoundInSource]:
    for one in profiled_in(code):
        yield FoundInSource(
            place=one.module.place(one.call),
            cause=f"`{one.what}` writes down every operation of every step",
            change="delete it, or record a few steps: schedule=schedule(wait=10, warmup=2, active=5, repeat=1)",
        )


_TRAINED = """
import cProfile
import torch
from torch.profiler import profile

def train(model, loader):
    with profile(record_shapes=True) as profiler:  # found
        for step, batch in enumerate(loader):
            model(batch).backward()
            optimizer.step()
"""
_CALLED = """
import torch

def train(model, loader):
    for batch in loader:
        model(batch).backward()
        optimizer.step()

def main():
    with torch.autograd.profiler.emit_nvtx():  # found
        train(model, loader)
"""
_QUIET = _TRAINED.replace("  # found", "")
SOURCE_CASES = (
    SourceCase("finds it around a training loop", _TRAINED),
    SourceCase("finds it around a call that trains", _CALLED),
    SourceCase(
        "finds it when Python's profiler stayed", _TRAINED.replace("profile(record_shapes=True)", "cProfile.Profile()")
    ),
    SourceCase(
        "finds it in each step",
        "import torch\nfor x in loader:\n    with torch.autograd.profiler.profile() as p:  # found\n"
        "        model(x).backward()\n    optimizer.step()\n",
    ),
    SourceCase(
        "quiet when it has a schedule",
        _QUIET.replace("record_shapes=True", "schedule=torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1)"),
    ),
    SourceCase(
        "quiet when a flag asks for it",
        _CALLED.replace("  # found", "")
        .replace("    with", "    if args.profile:\n        with")
        .replace("        train(", "            train("),
    ),
    SourceCase(
        "quiet when a variable switches it",
        _CALLED.replace("emit_nvtx()", "emit_nvtx(enabled=args.nvtx)").replace("  # found", ""),
    ),
    SourceCase(
        "quiet when it ends after a few steps",
        _QUIET.replace(
            "            model(batch)", "            if step == 20:\n                break\n            model(batch)"
        ),
    ),
    SourceCase("quiet when the run is made for it", _QUIET.replace("def train", "def profile_training")),
    SourceCase(
        "quiet when a part is only named", _QUIET.replace("profile(record_shapes=True)", "record_function('x')")
    ),
)
