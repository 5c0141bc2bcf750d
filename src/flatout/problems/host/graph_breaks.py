"""torch.compile compiles again and again, or breaks the model into many graphs.

What it is: `torch.compile` meets shapes, types or Python values it has not seen and recompiles during training; or it
cannot trace a line (a print, an `.item()`, a library call) and breaks the graph there.

Why the GPU idles: a compilation takes the host seconds. Each graph break returns to Python, waits, and starts the next
graph.

How it shows in a run: the number of compiled frames keeps growing after the start, and some steps take many times the
median; or graph breaks are counted while the GPU waits for launches.

How it shows in source: `.item()`, `.tolist()`, `print` or `synchronize` in a function or a module's forward pass that
is always given to `torch.compile`, or in what it calls.

The fix: keep shapes the same (`drop_last=True`, padding to a few lengths) or `torch.compile(model, dynamic=True)`;
take prints and `.item()` out of `forward`. `TORCH_LOGS=recompiles,graph_breaks` names each with its reason.

What to expect: the mean step falls to the median; without graph breaks, launches take less time as well.

When it is fine: the first steps, or the first evaluation.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.model.edits import Edits, LessHost, LessStep
from flatout.model.measured import device_work_ms
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.problems.host.launch_bound import DRY, PASSES, WORTH_LAUNCHING
from flatout.problems.hot_lines import host_lines
from flatout.records.evidence import Evidence
from flatout.records.message import Message, message
from flatout.records.source import Related
from flatout.source.code import Code
from flatout.source.flow.guards import walk_main_path
from flatout.source.syntax.module import Function, Module, full_name
from flatout.source.syntax.nodes import argument, callable_of, called_name, dotted_name, has_decorator, short_text

CODE = "HO407"
# An evaluation or a last, smaller batch compiles once more.
_STILL_COMPILING = 3
_NEARLY_EACH = 0.3
_FORWARD_OF_BACKWARD = 0.8
_LONGER = 1.03
# So much of a step is left at least, however long the compiler says that it took.
_LEAST_LEFT = 0.02


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    states = [state for state in run.torch_states if state.get("compiled")]
    if not states:
        return
    later = (int(states[-1].get("compiled_frames") or 0) - int(states[0].get("compiled_frames") or 0)) // 2
    breaks = int(states[-1].get("graph_breaks") or 0)
    loss = _loss_by_recompiling(run, later) if later >= _STILL_COMPILING else _loss_by_breaks(run, breaks)
    if loss is None:
        return
    edits, cause, change = loss
    yield FoundInRun(
        # The line of the forward pass under which the compiler was seen most.
        location=next((line.location for line in host_lines(run) if later >= _STILL_COMPILING), None),
        evidence={
            "compiled_later": max(0, later),
            "graph_breaks": breaks,
            "step_ms": round(run.step_ms, 2),
            "median_step_ms": round(run.median_step_ms or 0.0, 2),
        },
        cause=cause,
        change=change,
        edits=edits,
    )


# What goes with it, the cause, and the change.
_Loss = tuple[Edits, Message, Message]


def _loss_by_recompiling(run: Evidence, later: int) -> _Loss | None:
    """The steps that compile are far longer than the others, or all of them compile."""
    steps = max(1, run.report.run.steps)
    compile_ms = _compile_ms(run, steps)
    if compile_ms is not None:
        left_ms = max(run.step_ms - compile_ms, _LEAST_LEFT * run.step_ms)
        cause = message(
            "ho407.cause_compile_time", compilations=later, steps=steps, compile_ms=compile_ms, step_ms=run.step_ms
        )
    elif later >= _NEARLY_EACH * steps:
        # What a forward pass takes without compiling was not seen; it rarely takes longer than its backward.
        forward_ms = min(run.phase("forward").ms, _FORWARD_OF_BACKWARD * run.phase("backward").ms)
        left_ms = run.step_ms - run.phase("forward").ms + forward_ms
        cause = message(
            "ho407.cause_forward",
            compilations=later,
            steps=steps,
            forward_ms=run.phase("forward").ms,
            step_ms=run.step_ms,
        )
    else:
        left_ms = run.median_step_ms or run.step_ms
        cause = message("ho407.cause_median", compilations=later, step_ms=run.step_ms, median_ms=left_ms)
    if run.step_ms < _LONGER * left_ms:
        return None
    spared_ms = run.step_ms - left_ms
    edits = Edits((LessStep(spared_ms),), worst=(LessStep(0.5 * spared_ms),))
    return edits, cause, message("ho407.change_recompiled")


def _compile_ms(run: Evidence, steps: int) -> float | None:
    """Of compiling in a mean step; None where torch does not tell.

    Older recordings know only what a frame took, and the frames of the whole run.
    """
    if run.compile_ms is not None:
        return run.compile_ms
    told = [state for state in run.torch_states if state.get("compile_s") is not None]
    if len(told) < 2:
        return None
    first, last = told[0], told[-1]
    frames = last["compiled_frames"] - first["compiled_frames"]
    each_ms = 1e3 * (last["compile_s"] - first["compile_s"]) / frames if frames > 0 else 0.0
    return each_ms * float(last["compiled_frames"]) / steps


def _loss_by_breaks(run: Evidence, breaks: int) -> _Loss | None:
    """Breaks matter where the device waits for launches."""
    work_ms = device_work_ms(run)
    passes_ms = sum(run.phase(name).ms for name in PASSES)
    if not breaks or not run.on_gpu or work_ms is None or (run.drained_share or 0.0) < DRY:
        return None
    idle_ms = passes_ms - work_ms
    if idle_ms < WORTH_LAUNCHING * run.step_ms:
        return None
    edits = Edits((LessHost(0.5 * idle_ms, is_sampled=False),))
    cause = message("ho407.cause_breaks", breaks=breaks, idle_ms=idle_ms, step_ms=run.step_ms)
    return edits, cause, message("ho407.change_breaks")


# What is certainly given to torch.compile, and what in it the compiler cannot follow.

_DEEPEST = 3
_LEFT_OUT = ("disable", "disallow_in_graph", "ignore", "unused", "cache")


def in_source(code: Code) -> Iterator[FoundInSource]:
    seen: set[int] = set()
    for module in code.project.modules:
        is_named = "torch.compile" in module.text or ".compile(" in module.text or "import compile" in module.text
        if not is_named or "torch" not in module.text or not code.training.takes_part(module):
            continue
        for function, where in _find_compiled(module, code):
            for inside in _with_callees(function, code):
                if id(inside) in seen:
                    continue
                seen.add(id(inside))
                for node in _find_breaking_nodes(inside):
                    yield FoundInSource(
                        place=inside.module.place(node),
                        cause=message("ho407.source_cause", code=short_text(node, 40), function=inside.qualified),
                        change=message("ho407.source_change"),
                        related=(where,),
                    )


def _find_compiled(module: Module, code: Code) -> Iterator[tuple[Function, Related]]:
    """Functions, and forward passes of modules, that are compiled whatever the settings say."""
    for function in module.functions:
        for decorator in function.definition.decorator_list if function.definition is not None else ():
            if full_name(callable_of(decorator), module) == "torch.compile" and not _has_full_graph(decorator):
                yield function, Related(module.place(decorator), message("related.compiled"))
    for call, function in module.calls.get("compile", ()):
        given = _given(call, module)
        if given is None or _has_full_graph(call) or not _is_certain(call, function):
            continue
        where = Related(module.place(call), message("related.compiled"))
        if isinstance(given, ast.Name) and isinstance(meant := code.project.lookup(given.id, function), Function):
            yield meant, where
        elif (cls := code.project.class_of(given, function)) is not None:
            yield from ((method, where) for method in code.project.methods(cls, "forward"))


def _given(call: ast.Call, module: Module) -> ast.expr | None:
    """What is compiled: `torch.compile(model)`, `model.compile()`."""
    if full_name(call.func, module) == "torch.compile":
        return argument(call, "model", 0)
    is_method = isinstance(call.func, ast.Attribute) and dotted_name(call.func.value) not in ("", "re", "torch")
    # Keras has `model.compile(optimizer=…)` too.
    named = {keyword.arg for keyword in call.keywords} <= {"mode", "dynamic", "backend", "options", "fullgraph"}
    return call.func.value if is_method and named and not call.args and isinstance(call.func, ast.Attribute) else None


def _has_full_graph(node: ast.expr) -> bool:
    """With `fullgraph=True` a break is an error: there are none."""
    return isinstance(node, ast.Call) and argument(node, "fullgraph") is not None


def _is_certain(call: ast.Call, function: Function) -> bool:
    """Not behind a setting: only `if hasattr(torch, "compile")` and checks of the version may stand before it."""
    for parent, _ in function.module.ancestors(call):
        if parent is function.node:
            break
        text = ast.unparse(parent.test) if isinstance(parent, ast.If | ast.IfExp) else ""
        if text and not any(known in text for known in ("hasattr(torch", "torch.__version__", "cuda.is_available")):
            return False
    return True


def _with_callees(function: Function, code: Code) -> Iterator[Function]:
    """The function and what it calls, each once."""
    met, waiting = {id(function)}, [(function, 0)]
    while waiting:
        caller, depth = waiting.pop()
        yield caller
        for call in caller.calls if depth < _DEEPEST else ():
            for callee in code.project.resolve(call, caller):
                # `@torch.compiler.disable`
                is_left_out = has_decorator(callee.definition, _LEFT_OUT)
                if id(callee) not in met and callee.name != "__init__" and not is_left_out:
                    met.add(id(callee))
                    waiting.append((callee, depth + 1))


def _find_breaking_nodes(function: Function) -> Iterator[ast.expr]:
    for point in walk_main_path(function.node.body, function):
        node = point.node
        if not isinstance(node, ast.Call):
            continue
        name = called_name(node)
        of_tensor = isinstance(node.func, ast.Attribute) and name in ("item", "tolist") and not node.args
        if (
            (of_tensor and not node.keywords)
            or (isinstance(node.func, ast.Name) and name in ("print", "breakpoint"))
            or dotted_name(node.func) in ("torch.cuda.synchronize", "pdb.set_trace")
        ):
            yield node
