"""The whole training runs inside a profiler.

What it is: the training loop runs inside `torch.profiler.profile` or `torch.autograd.profiler.profile` without a
schedule, left there after an investigation.

Why the GPU idles: every operation is recorded, with its shapes and stack if those were asked for, on the thread that
launches; the records stay in memory until the profiler ends.

How it shows in a run: lines of the steps are in the body of a `with` statement that opens a profiler without
`schedule`.

How it shows in source: `torch.profiler.profile`, `torch.autograd.profiler.profile`, `emit_nvtx` or `cProfile.Profile`
around a training loop, without a schedule and not behind a flag; `Trainer(profiler="pytorch")` of Lightning.

The fix: remove it, or record a few steps only: `profile(schedule=torch.profiler.schedule(wait=10, warmup=2, active=5,
repeat=1))` with `prof.step()` in the loop.

What to expect: a few microseconds less an operation, which matters most where operations are small. Memory no longer
grows.

When it is fine: a run made to be profiled.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from flatout.problems.found import FoundInRun, FoundInSource
from flatout.problems.hot_lines import find_around_training
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.report import Location
from flatout.source.code import Code
from flatout.source.flow.guards import walk_main_path
from flatout.source.syntax.module import Function, Module, full_name, parse_text
from flatout.source.syntax.nodes import LOOPS, argument, dotted_name, has_star_arguments, is_call, walk_body

CODE = "HO406"
_PROFILERS = ("profiler.profile", "profile", "profiler.emit_nvtx", "emit_nvtx")


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    opened = find_around_training(run, _opens)
    if opened is None:
        if not _is_left_on(run):
            return
        opened = _find_call(run)
    yield FoundInRun(
        severity="medium",
        location=opened,
        evidence={"steps": run.report.run.steps, "step_ms": round(run.step_ms, 2)},
        cause=message("ho406.cause", steps=run.report.run.steps),
        change=message("ho406.change"),
        # What the operations cost without it was not measured in this run.
    )


def _is_left_on(run: Evidence) -> bool:
    """Was it seen at work when the run was last looked at, and never seen to end before that?"""
    seen = [bool(state.get("profiler_enabled")) for state in run.torch_states]
    return bool(seen) and seen[-1] and not any(on and not then for on, then in pairwise(seen))


def _find_call(run: Evidence) -> Location | None:
    """Where a profiler is made, in the files that take part in the training."""
    for file, text in run.files.items():
        module = parse_text(text)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and full_name(node.func, module) in _OF_TORCH:
                return Location(file, node.lineno)
    return None


def _opens(call: ast.Call, name: str) -> bool:
    """Does this open a profiler for all that is in its body?"""
    if not name.endswith(_PROFILERS):
        return False
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    first = ast.unparse(call.args[0]) if call.args else ""
    # A switch that is a variable may well be off.
    is_on = given.get("enabled", "True") == "True" and (not first or first == "True")
    return "schedule" not in given and is_on


# Profilers that are open around a whole training, or in every step of it.

_OF_TORCH = {"torch.profiler.profile", "torch.autograd.profiler.profile", "torch.autograd.profiler.emit_nvtx"}
_OF_PYTHON = {"cProfile.Profile", "profile.Profile"}
_WORDS = ("profile", "emit_nvtx", "Profile", "profiler")
# Made to be profiled, or a test of it.
_MEANT = re.compile(r"profil|bench|trace|test", re.I)
# Too few steps for a training.
_FEW = 200


def in_source(code: Code) -> Iterator[FoundInSource]:
    modules = {id(mentioning): mentioning for word in _WORDS for mentioning in code.project.mentioning(word)}
    for module in modules.values():
        if not code.training.takes_part(module) or _MEANT.search(module.name.split(".")[-1]):
            continue
        for function in module.functions:
            if not _MEANT.search(function.name):
                yield from _in_function(function, code)
        yield from _trainers(module, code)


def _left_on(module: Module, call: ast.Call, profiler: str) -> FoundInSource:
    return FoundInSource(
        place=module.place(call),
        cause=message("ho406.source_cause", profiler=profiler),
        change=message("ho406.source_change"),
    )


def _in_function(function: Function, code: Code) -> Iterator[FoundInSource]:
    opened: set[int] = set()
    for point in walk_main_path(function.node.body, function):
        statement = point.statement
        if not isinstance(statement, ast.With | ast.AsyncWith) or id(statement) in opened:
            continue
        opened.add(id(statement))
        for item in statement.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and _records(call, function, code) and _trains(statement, function, code):
                yield _left_on(function.module, call, dotted_name(call.func))


def _records(call: ast.Call, function: Function, code: Code) -> bool:
    """Does it write down all that is done in its body?"""
    whole = full_name(call.func, function.module)
    if whole in _OF_PYTHON:
        return True
    if whole not in _OF_TORCH or has_star_arguments(call) or argument(call, "schedule") is not None:
        return False
    enabled = argument(call, "enabled", 0) if whole != "torch.profiler.profile" else None
    value = code.values.of(enabled, function) if enabled is not None else None
    # A switch that is a variable may well be off.
    return enabled is None or (value is not None and value.value is True)


def _trains(statement: ast.With | ast.AsyncWith, function: Function, code: Code) -> bool:
    """A training loop runs inside, itself or by a call, and more than a few steps of it."""
    loops = {id(loop): of for loop, of in code.training.loops}
    holders = {id(of): loop for loop, of in code.training.loops}
    for inner in walk_body(statement.body):
        if isinstance(inner, LOOPS) and id(inner) in loops:
            return not _is_short(inner)
        if isinstance(inner, ast.Call):
            for callee in code.project.resolve(inner, function):
                if id(callee) in holders:
                    return not _is_short(holders[id(callee)])
    # Within the step: around its forward or backward pass.
    in_step = any(point.statement is statement for region in code.training.regions for point in region.main_path())
    return in_step and any(is_call(inner, "backward") for inner in walk_body(statement.body))


def _is_short(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """It ends after a few steps: `for i in range(20)`, or a counter that breaks out of it."""
    if isinstance(loop, ast.For | ast.AsyncFor):
        count = loop.iter.args[-1] if isinstance(loop.iter, ast.Call) and loop.iter.args else None
        few = isinstance(count, ast.Constant) and isinstance(count.value, int) and count.value <= _FEW
        if few and is_call(loop.iter, "range", "islice"):
            return True
    return any(isinstance(inner, ast.Break) for inner in walk_body(loop.body))


def _trainers(module: Module, code: Code) -> Iterator[FoundInSource]:
    """`Trainer(profiler="pytorch")` of Lightning; "simple" takes next to nothing."""
    if "ightning" not in module.text:
        return
    for call, function in module.calls.get("Trainer", ()):
        given = argument(call, "profiler")
        value = code.values.of(given, function) if given is not None else None
        if value is not None and value.value in ("pytorch", "advanced"):
            yield _left_on(module, call, f"profiler={value.value!r}")
