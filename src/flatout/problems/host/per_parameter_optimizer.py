"""The optimizer launches its update for each parameter separately.

What it is: `foreach=False`, an optimizer for each parameter, or (on a GPU) one that could be fused and is not.

Why the GPU idles: the update of one tensor is a dozen tiny kernels. Parameter by parameter that is thousands of
launches a step, each of which takes the host longer than the GPU.

How it shows in a run: the optimizer's own settings, the number of optimizers, and a long `optimizer` phase.

How it shows in source: `foreach=False` given to one of torch's optimizers; a loop over parameters in every step that
changes each separately: an update or a moving average written by hand, gradients scaled or clipped one by one.

The fix: one optimizer for all parameters, without `foreach=False`: `torch.optim.AdamW(model.parameters(), lr=lr,
fused=True)`. Different learning rates are parameter groups of one optimizer.

What to expect: most of the phase goes, down to the time that the GPU or the CPU needs to read and write the state.

When it is fine: few parameters, a short phase, or launches hidden behind the GPU. A default optimizer on a CPU is not
reported: nothing is wrong with it, though `fused=True` may be quicker there too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flatout.model.edits import Edits, LessDevice, LessHost
from flatout.model.prediction import predict
from flatout.problems.found import WORTH, FoundInRun, FoundInSource, step_of
from flatout.problems.host.optimizers import FUSED, Optimizer, ParameterUpdate, find_optimizers, find_updates
from flatout.problems.hot_lines import host_lines, is_of_loop, lines_in, text_at
from flatout.records.evidence import Evidence
from flatout.records.message import Message, message, verbatim
from flatout.records.report import Location
from flatout.records.source import Fix
from flatout.source.code import Code, call_path
from flatout.source.loops import find_text_loops
from flatout.source.syntax.edits import replace_node
from flatout.source.syntax.nodes import short_text
from flatout.source.training.jobs import loop_header

CODE = "HO403"
REMEDY = "optimizer.fused"
# Torch's own default is only reported where fusing would clearly show.
_WORTH_FUSING = 1.05
_MANY_OPTIMIZERS, _FEW_EACH, _MANY_PARAMETERS = 8, 2, 8
# Of the phase that one fused update saves, by what there was before; seen with 24 to 360 tensors of all sizes.
_SAVED = {"many": 0.88, "loop": 0.8, "foreach": 0.5, "own": 0.8}
_SAVED_UNFUSED = {"many": 0.6, "loop": 0.5, "foreach": 0.0, "own": 0.8}


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    phase_ms = run.phase("optimizer").ms
    own = _own_loop(run)
    optimizer = max(run.live_optimizers, key=lambda known: int(known.get("params") or 0), default=None)
    if optimizer is None or phase_ms < WORTH * run.step_ms:
        return
    how = "own" if own is not None else _how(run, optimizer)
    if how is None:
        return
    name = str(optimizer.get("class", "")).rsplit(".", 1)[-1]
    fuses = name in FUSED and str(optimizer.get("class", "")).startswith("torch.optim")
    saved_ms = phase_ms * (_SAVED if fuses else _SAVED_UNFUSED)[how]
    # Fused, the device reads and writes the state once and not once for each of a dozen operations.
    on_device_ms = 0.0 if run.report.gpu is None else run.report.gpu.device_ms.get("optimizer", 0.0)
    spared_ms = min(phase_ms, on_device_ms) * (0.5 if fuses else 0.0)
    if how == "many":
        # What calling so many of them takes outside of their steps: the loops around `step` and `zero_grad`.
        around = [c for c in host_lines(run) if c.location == _line(run) or "zero_grad" in text_at(run, c.location)]
        saved_ms += 0.9 * sum(line.ms for line in around)
    edits = Edits((LessHost(saved_ms, "optimizer", is_sampled=False), LessDevice(spared_ms)))
    gain = predict(run, edits)
    if gain is None or (how == "foreach" and gain.mid < _WORTH_FUSING):
        return
    yield FoundInRun(
        location=own or _line(run),
        evidence={
            "optimizer_ms_per_step": round(phase_ms, 2),
            "optimizer": name,
            "optimizers": max(1, run.optimizers_met),
            "parameters": int(optimizer.get("params") or 0) * (run.optimizers_met if how == "many" else 1),
            "foreach": str(optimizer.get("foreach")),
            "fused": str(optimizer.get("fused")),
        },
        cause=_cause(run, how, name, int(optimizer.get("params") or 0)),
        change=_change(how, name, fuses),
        edits=edits,
    )


def _own_loop(run: Evidence) -> Location | None:
    """The most expensive line of an optimizer of the script's own that goes over its parameters in Python.

    In the loop itself, or in a function that it calls for each.
    """
    lines = lines_in(run, "optimizer")
    for line in lines:
        place = line.location
        text = run.files.get(place.file, "")
        loops = (loop for loop in find_text_loops(text) if loop.kind == "parameters" and not loop.trains)
        loop = next((loop for loop in loops if is_of_loop(line, loop, text)), None)
        if loop is not None:
            mine = [other for other in lines if other.location.file == place.file]
            at = place if loop.holds(place.line) else Location(place.file, loop.first)
            return at if sum(own_line.ms for own_line in mine) >= 0.5 * run.phase("optimizer").ms else None
    return None


def _how(run: Evidence, optimizer: dict[str, Any]) -> str | None:
    """How the parameters are updated, if that can be bettered."""
    parameters = int(optimizer.get("params") or 0)
    if run.optimizers_met >= _MANY_OPTIMIZERS and parameters <= _FEW_EACH:
        return "many"
    if optimizer.get("fused") or parameters < _MANY_PARAMETERS:
        return None
    if optimizer.get("foreach") is False:
        return "loop"
    # Without a word of the script's, torch takes foreach on a GPU. On a CPU its default is its own affair.
    return "foreach" if run.on_gpu and "foreach" in optimizer else None


def _line(run: Evidence) -> Location | None:
    return next((line.location for line in lines_in(run, "optimizer")), None)


def _cause(run: Evidence, how: str, name: str, parameters: int) -> Message:
    took = {"phase_ms": run.phase("optimizer").ms, "step_ms": run.step_ms}
    if how == "many":
        return message("ho403.cause_many", optimizers=run.optimizers_met, parameters=parameters, **took)
    way = message("ho403.one_by_one" if how in ("loop", "own") else "ho403.in_rounds")
    return message("ho403.cause", optimizer=name, parameters=parameters, way=way, **took)


def _change(how: str, name: str, fuses: bool) -> Message:
    if how == "own":
        return message("ho403.change_own")
    if how == "many":
        return message("ho403.change_many", call=f"{name}(model.parameters(){', fused=True' if fuses else ''})")
    return verbatim(f"{name}(..., fused=True)") if fuses else message("ho403.change_foreach", optimizer=name)


def in_source(code: Code) -> Iterator[FoundInSource]:
    for module in code.project.mentioning("foreach"):
        if code.training.takes_part(module):
            for optimizer in find_optimizers(module):
                yield from _foreach_is_off(optimizer, code)
    for update in find_updates(code):
        if update.done != "zeroed":
            yield _finding_of_update(update)


def _foreach_is_off(optimizer: Optimizer, code: Code) -> Iterator[FoundInSource]:
    given = optimizer.given("foreach")
    value = code.values.of(given.value, optimizer.function) if given is not None else None
    is_off = value is not None and value.value is False
    if given is None or not is_off or optimizer.given("fused", "differentiable") is not None:
        return
    module, better = optimizer.function.module, "fused=True" if optimizer.name in FUSED else "foreach=True"
    yield FoundInSource(
        place=module.place(optimizer.call),
        cause=message("ho403.source_cause_foreach", optimizer=optimizer.name),
        change=verbatim(f"{optimizer.name}(..., {better})"),
        # Sums are rounded in another order, and `foreach` keeps more in memory at once.
        fix=Fix(
            message("fix.replace", old="foreach=False", new=better),
            (replace_node(module, given, better),),
            is_safe=False,
        ),
    )


def _finding_of_update(update: ParameterUpdate) -> FoundInSource:
    region = update.region
    if region is None:
        when = message("problems.at_each_call", function=update.function.qualified)
    else:
        when = message("problems.in_step", step=step_of(region))
    return FoundInSource(
        place=loop_header(update.loop, update.function.module),
        cause=message("ho403.source_cause", code=short_text(update.node, 40), when=when),
        change=message("ho403.source_change_clip" if update.done == "clipped" else "ho403.source_change"),
        related=() if region is None else call_path(region),
    )
