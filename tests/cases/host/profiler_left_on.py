"""Runs and code that have HO406, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import LineCost, Location
from tests.cases.code import SourceCase
from tests.cases.evidence import Case, run

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
    Case(
        "finds it when a profiler is seen at work throughout",
        run(torch_states=({"profiler_enabled": True}, {"profiler_enabled": True, "num_threads": 2})),
        found=True,
    ),
    Case(
        "quiet when a profiler was at work for some steps",
        run(torch_states=tuple({"profiler_enabled": on} for on in (False, True, False, True))),
        found=False,
    ),
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
