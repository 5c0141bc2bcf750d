"""Autograd's anomaly detection is on during training.

What it is: `torch.autograd.set_detect_anomaly(True)`, or a framework's `detect_anomaly=True`, left on after a NaN was
found.

Why the GPU idles: every operation of the forward pass records a Python stack trace, and every gradient of the backward
pass is checked for NaN, which is a sync each time.

How it shows in a run: torch's state says so; forward and backward take far longer than the GPU's work in them.

How it shows in source: `set_detect_anomaly(True)`, `with detect_anomaly():` or `detect_anomaly=True` in a training,
not behind a debug flag.

The fix: delete the call, or put it behind a debug flag.

What to expect: forward and backward take from a sixth less, where operations are large, to two thirds less, where they
are small.

When it is fine: while you look for a NaN.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flatout.model.edits import Edits, LessHost
from flatout.model.prediction import predict
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.problems.hot_lines import find_around_training
from flatout.records.evidence import Evidence
from flatout.records.message import message, verbatim
from flatout.records.report import Location
from flatout.records.source import Edit, Fix
from flatout.source.code import Code
from flatout.source.flow.guards import walk_main_path
from flatout.source.flow.values import replace_value
from flatout.source.syntax.edits import replace_node
from flatout.source.syntax.module import Function
from flatout.source.syntax.nodes import argument, called_name, dotted_name

CODE = "HO405"
REMEDY = "autograd.plain"
# What tracing and checking take of forward and backward: seen from large to small operations.
_LEAST, _USUAL, _MOST = 0.14, 0.38, 0.68
# Where the operations were counted: what a traceback of each takes, in three scripts on x86 hosts (it is up to 0.25 ms
# on a Neoverse N1).
_EACH_MS = 0.09
# Newer recordings tell how long the tracebacks take in this run, by an operation timed with warm caches. Anomaly
# mode took 1.2, 1.3, 1.8 and 2.7 times as much in four models, with the checks of gradients.
_OF_TIMED, _AT_WORST, _AT_BEST = 1.6, 0.7, 1.7
_SWITCH = re.compile(r"set_detect_anomaly\(\s*(mode\s*=\s*)?True|detect_anomaly\(|detect_anomaly\s*=\s*True")


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    # Torch's state is noted between steps: a `with` around a part of the step does not show in it.
    around = find_around_training(run, _opens)
    if around is None and run.live_torch.get("anomaly_mode") is not True:
        return
    checks = sum(site.per_step for site in run.report.syncs if site.op == "hidden")
    passes_ms = run.phase("forward").ms + run.phase("backward").ms
    edits = Edits.between((LessHost(ms, is_sampled=False, of_model=True),) for ms in _spent_ms(run, passes_ms))
    yield FoundInRun(
        location=around or _switch(run),
        evidence={
            "forward_and_backward_ms_per_step": round(passes_ms, 2),
            **({"hidden_syncs_per_step": round(checks, 1)} if run.on_gpu and checks else {}),
        },
        cause=message("ho405.cause", passes_ms=passes_ms, step_ms=run.step_ms),
        change=verbatim("torch.autograd.set_detect_anomaly(False)"),
        edits=edits,
        severity=None if predict(run, edits) is not None else "medium",
    )


def _spent_ms(run: Evidence, passes_ms: float) -> tuple[float, float, float]:
    """What it takes of the passes in a step: at least, likely and at most."""
    operations, measured_ms = (run.live_torch.get(name) for name in ("anomaly_operations", "anomaly_ms"))
    if not isinstance(operations, int) or not operations:
        return _LEAST * passes_ms, _USUAL * passes_ms, _MOST * passes_ms
    likely_ms = _OF_TIMED * measured_ms if isinstance(measured_ms, float) else operations * _EACH_MS
    likely_ms = min(passes_ms, likely_ms)
    at_best_ms = max(likely_ms, min(_AT_BEST * likely_ms, _MOST * passes_ms))
    return _AT_WORST * likely_ms, likely_ms, at_best_ms


def _opens(call: ast.Call, name: str) -> bool:
    given = [ast.unparse(value) for value in (*call.args[:1], *(k.value for k in call.keywords if k.arg == "mode"))]
    return (name.endswith("set_detect_anomaly") and given == ["True"]) or name.endswith(".detect_anomaly")


def _switch(run: Evidence) -> Location | None:
    """Where the source switches it on, if that is in a file of the training."""
    for file, text in run.files.items():
        for number, line in enumerate(text.splitlines(), 1):
            if _SWITCH.search(line) and not line.lstrip().startswith("#"):
                return Location(file, number)
    return None


def in_source(code: Code) -> Iterator[FoundInSource]:
    for module in code.project.modules:
        if "detect_anomaly" not in module.text or not code.training.takes_part(module):
            continue
        for function in module.functions:
            for point in walk_main_path(function.node.body, function):
                if isinstance(point.node, ast.Call) and _turns_on(point.node, function, code):
                    yield FoundInSource(
                        severity="high",
                        place=module.place(point.node),
                        cause=message("ho405.source_cause"),
                        change=message("ho405.source_change"),
                        fix=_fix(point.node, function, code),
                    )


def _fix(call: ast.Call, function: Function, code: Code) -> Fix | None:
    """Not a safe one: with it a run ends at the first NaN, without it goes on."""
    name, module = called_name(call), function.module
    if name == "detect_anomaly":
        # The context manager that can be told to do nothing is the other one.
        owner = f"{dotted_name(call.func.value)}." if isinstance(call.func, ast.Attribute) else ""
        needs = () if owner else ("from torch.autograd import set_detect_anomaly",)
        edit = replace_node(module, call, f"{owner}set_detect_anomaly(False)")
        return Fix(verbatim("set_detect_anomaly(False)"), (edit,), is_safe=False, imports=needs)
    given = argument(call, "mode", 0) if name == "set_detect_anomaly" else argument(call, "detect_anomaly")
    value = None if given is None else code.values.of(given, function)
    if value is None:
        return None
    found = Edit(value.place, "False") if value.is_direct else replace_value(code.project, value, False, "anomal")
    return None if found is None else Fix(message("ho405.fix"), (found,), is_safe=False)


def _turns_on(call: ast.Call, function: Function, code: Code) -> bool:
    name = called_name(call)
    if name in ("set_detect_anomaly", "detect_anomaly"):
        given = argument(call, "mode", 0) if name == "set_detect_anomaly" else None
        if given is None:
            return name == "detect_anomaly"
    else:
        given = argument(call, "detect_anomaly")
        # An option of that name only says what can be asked for.
        if given is None or name in ("add_argument", "dict", "dataclass"):
            return False
    value = code.values.of(given, function)
    return value is not None and value.value is True
