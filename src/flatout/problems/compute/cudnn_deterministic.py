"""Deterministic algorithms are enforced, so the fastest kernels may not be used.

What it is: `torch.backends.cudnn.deterministic` or `torch.use_deterministic_algorithms` is on, so torch may not
choose the fastest algorithm for convolutions, scatter and the like, and cudnn does not search for it.

Why the GPU idles: it does not; its kernels take longer than they have to, or have to be run one after the other.

How it shows in a run: the switch as it was in the live process, in a run whose bottleneck is the GPU.

How it shows in source: `cudnn.deterministic = True`, `cudnn.benchmark = False`, `cudnn.enabled = False` or
`torch.use_deterministic_algorithms(True)` in the files of a training on a GPU, where the value is known and the line
runs with the script's defaults: `if args.deterministic:` with a default of False is not reported.

The fix: `torch.backends.cudnn.deterministic = False`, `torch.backends.cudnn.benchmark = True` (for inputs of the same
shape), unless every run has to give the same bits.

What to expect: it depends on the kernels the model uses. A card that counts how long its memory and its tensor cores
are active tells how much all its kernels lose; half of what convolutions lose is attributed to the switch, and it may
be nothing. Without these counters no gain is predicted.

When it is fine: while debugging, or where bit-identical runs are required.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from flatout.model.edits import Edits, LessStep
from flatout.model.prediction import predict
from flatout.problems.compute.device import gpu_passes_ms, is_gpu_bound, needed_shares
from flatout.problems.found import FoundInRun, FoundInSource, where_written
from flatout.records.evidence import Evidence
from flatout.records.message import message, verbatim
from flatout.records.source import Fix
from flatout.source.code import Code
from flatout.source.flow.reachability import runs_by_default
from flatout.source.flow.values import Value
from flatout.source.syntax.edits import replace_node
from flatout.source.syntax.module import Function, Module
from flatout.source.syntax.nodes import argument, last_name
from flatout.source.training.jobs import is_test_module, text_pattern

CODE = "CO503"
REMEDY = "cudnn.benchmark"
# Of what the kernels lose: between nothing and all of it is the switch's doing.
_LIKELY = 0.5
_NOTICED = 1.01


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    state = run.live_torch
    cudnn, everything = bool(state.get("cudnn_deterministic")), bool(state.get("deterministic_algorithms"))
    if not run.on_gpu or not (cudnn or everything):
        return
    switch = "torch.use_deterministic_algorithms(True)" if everything else "torch.backends.cudnn.deterministic = True"
    yield FoundInRun(
        severity="medium" if is_gpu_bound(run) else "low",
        evidence={
            "cudnn_deterministic": str(cudnn),
            "deterministic_algorithms": str(everything),
            "cudnn_benchmark": str(bool(state.get("cudnn_benchmark"))),
        },
        cause=message("co503.cause", switch=switch),
        change=verbatim(
            "torch.backends.cudnn.deterministic = False; torch.backends.cudnn.benchmark = True"
            + ("; torch.use_deterministic_algorithms(False)" if everything else "")
        ),
        edits=_edits(run, everything),
    )


def _edits(run: Evidence, everything: bool) -> Edits | None:
    """None where it was not measured, or the kernels lose nothing."""
    part, passes_ms = needed_shares(run), gpu_passes_ms(run)
    if part is None or not is_gpu_bound(run):
        return None
    # cudnn's switch is for convolutions alone.
    concerned = 1.0 if everything else float(run.live_torch.get("convolution_share") or 0.0)
    lost_ms = passes_ms * concerned * (1 - part[1])
    edits = Edits((LessStep(_LIKELY * lost_ms),), worst=(LessStep(0.0),), best=(LessStep(lost_ms),))
    gain = predict(run, edits)
    return edits if gain is not None and gain.mid >= _NOTICED else None


_INSTEAD = {"deterministic": "False", "algorithms": "False", "enabled": "True", "benchmark": "True"}


# Switches that keep torch from its fastest kernels, as a training on a GPU sets them.

_SWITCHES: tuple[tuple[Literal["deterministic", "enabled", "benchmark"], bool], ...] = (
    ("deterministic", True),
    ("enabled", False),
    ("benchmark", False),
)
_ALGORITHMS = ("use_deterministic_algorithms", "set_deterministic")
# cudnn's search is for convolutions; libraries of such models say nothing of them in the script.
_OF_CONVOLUTIONS = (
    "Conv1d", "Conv2d", "Conv3d", "torchvision", "timm", "diffusers", "segmentation_models", "monai", "resnet", "unet",
    "cnn", "mmcv", "mmdet", "detectron",
)  # fmt: skip
_CONVOLUTIONS = text_pattern(rf"\b({'|'.join(_OF_CONVOLUTIONS)})", *_OF_CONVOLUTIONS)


@dataclass(frozen=True, slots=True)
class Switch:
    """`given` is the expression that is set, `value` what it is known to be."""

    what: Literal["deterministic", "algorithms", "enabled", "benchmark"]
    function: Function
    node: ast.AST
    given: ast.expr
    value: Value
    has_convolutions: bool
    # benchmark = True beside deterministic = True: the fastest of the deterministic ones is searched for.
    is_searched: bool = False


def find_switches(code: Code) -> Iterator[tuple[Switch, ...]]:
    """Those of one function together, the weightiest first."""
    concerned: dict[int, tuple[Module, bool]] = {}
    for job in code.jobs:
        if job.is_on_gpu:
            convolves = job.says(_CONVOLUTIONS)
            for part in job.modules:
                if is_test_module(part):
                    continue
                concerned[id(part)] = (part, convolves or concerned.get(id(part), (part, False))[1])
    for module, convolves in concerned.values():
        if "cudnn" not in module.text and not any(word in module.text for word in _ALGORITHMS):
            continue
        for function in module.functions:
            found = [
                switch
                for switch in (*_find_assignments(function, convolves, code), *_find_calls(function, convolves, code))
                if runs_by_default(switch.node, function, code.project, code.values)
            ]
            if found:
                order = ("algorithms", "enabled", "deterministic", "benchmark")
                yield tuple(sorted(found, key=lambda switch: order.index(switch.what)))


def _find_assignments(function: Function, convolves: bool, code: Code) -> Iterator[Switch]:
    for name, values in function.bindings.items():
        owner, _, attribute = name.rpartition(".")
        if owner.split(".")[-1] != "cudnn":
            continue
        known = [code.values.of(given, function) for given in function.bindings.get(f"{owner}.benchmark", ())]
        is_searched = any(value is not None and value.value is True for value in known)
        for what, guilty in _SWITCHES:
            if what != attribute or (what == "benchmark" and not convolves):
                continue
            for given in values:
                value = code.values.of(given, function)
                if value is not None and isinstance(value.value, bool | int) and bool(value.value) is guilty:
                    yield Switch(what, function, given, given, value, convolves, is_searched)


def _find_calls(function: Function, convolves: bool, code: Code) -> Iterator[Switch]:
    for call in function.calls:
        name = last_name(call.func)
        given = argument(call, "mode" if name == _ALGORITHMS[0] else "d", 0) if name in _ALGORITHMS else None
        value = code.values.of(given, function) if given is not None else None
        if given is not None and value is not None and value.value is True:
            yield Switch("algorithms", function, call, given, value, convolves)


def in_source(code: Code) -> Iterator[FoundInSource]:
    for together in find_switches(code):
        first = together[0]
        here = first.function.module.place(first.node)
        written, related = where_written(first.value, here, "related.reaches_switch")
        is_searched = first.what == "deterministic" and first.is_searched
        is_minor = first.what == "benchmark" or first.is_searched
        is_wide = first.what in ("algorithms", "enabled") or first.has_convolutions
        yield FoundInSource(
            place=written,
            cause=message("co503.deterministic_searched" if is_searched else f"co503.{first.what}"),
            change=message(f"co503.change_{first.what}"),
            severity="medium" if is_wide and not is_minor else "low",
            related=related,
            fix=_fix(together),
        )


def _fix(together: tuple[Switch, ...]) -> Fix | None:
    """All switches of one place at once: the next one would be found instead."""
    edits = []
    for switch in together:
        if not switch.value.is_direct:
            return None
        edits.append(replace_node(switch.function.module, switch.given, _INSTEAD[switch.what]))
    return Fix(message("co503.fix"), tuple(edits), is_safe=False)
