"""The training process keeps something of every step in host memory.

What it is: the training process keeps something of each step: losses with their graph, predictions, batches in a list.

Why the GPU idles: it does not, until the memory is exhausted and the kernel kills the run; before that the machine
swaps, and the garbage collector has more to look through at every pass.

How it shows in a run: the memory of the training process rises from step to step and does not level off; the interval
of the rise excludes zero. A list that grows with tensors in it is named.

How it shows in source: a loss, or a result with its graph, is appended to a list or added to a sum that outlives the
step, without `.detach()` or `.item()`.

The fix: keep numbers, not tensors with a graph: `total += loss.detach()` or `losses.append(loss.item())` now and then;
bound what accumulates (`collections.deque(maxlen=...)`); write out what has to be kept.

What to expect: no gain in speed, but a run that reaches its end.

When it is fine: a cache that fills during the first epoch and fits.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.problems.found import FoundInRun, FoundInSource, found_in_step, step_of
from flatout.problems.memory.growth import (
    DAY_S,
    TOO_FAR_S,
    Growth,
    amount,
    duration,
    growth_by_step,
    lasting_growth,
    memory_limit,
    room_bytes,
)
from flatout.records.evidence import Evidence, Holder
from flatout.records.message import message, verbatim
from flatout.records.source import Fix
from flatout.source.code import Code
from flatout.source.syntax.edits import replace_node, source_text
from flatout.source.syntax.nodes import (
    bound_names,
    called_name,
    dotted_name,
    is_call,
    parameters,
    short_text,
    walk_scope,
)
from flatout.source.training.regions import Region

CODE = "ME701"
_EMPTYING = ("clear", "pop", "popleft", "backward", "zero_")
# Datasets of torch's own that keep nothing they have handed out.
_KEEP_NOTHING = ("TensorDataset", "IterableDataset")


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    limit, steps_per_s = memory_limit(run), run.report.throughput.steps_per_s
    if limit is None or not steps_per_s:
        return
    growth = _growth(run, steps_per_s)
    if growth is None:
        return
    left_s = room_bytes(run, limit.bytes) / growth.bytes_per_s
    if left_s > TOO_FAR_S or _may_be_a_cache(run, growth.bytes_per_s, room_bytes(run, limit.bytes)):
        return
    per_step = growth.bytes_per_s / steps_per_s
    holder = run.holders[0] if run.holders else None
    evidence: dict[str, float | int | str] = {
        "bytes_per_step": round(per_step),
        "gained_bytes": round(growth.gained_bytes),
        "resident_bytes": round(growth.last_bytes),
        "limit_bytes": round(limit.bytes),
        "hours_left": round(left_s / 3600, 2),
    }
    if holder is not None:
        evidence |= {"holder": holder.name, "keeps_graph": int(holder.has_graph)}
    figures = {"kept": amount(per_step), "limit": limit.words, "size": amount(limit.bytes), "left": duration(left_s)}
    yield FoundInRun(
        location=None if holder is None else holder.location,
        severity="high" if left_s < DAY_S else "medium",
        evidence=evidence,
        cause=message("me701.cause", **figures)
        if holder is None
        else message("me701.cause_holder", holder=holder.name, what=message(_kind(holder)), **figures),
        change=message("me701.change"),
    )


def _growth(run: Evidence, steps_per_s: float) -> Growth | None:
    """By step where the process told of it, else over time as seen from outside."""
    if run.step_memory is None:
        return lasting_growth(run.series.get("main_rss_bytes"))
    growth = growth_by_step(run.step_memory, bool(run.holders))
    if growth is None:
        return None
    return Growth(growth.gained_bytes, growth.per_step * steps_per_s, growth.last_bytes)


def _kind(holder: Holder) -> str:
    if holder.element == "array":
        return "me701.arrays"
    return "me701.graphs" if holder.has_graph else "me701.tensors"


def _may_be_a_cache(run: Evidence, bytes_per_s: float, room: float) -> bool:
    """A dataset read in the main process may keep its samples: that ends with the first epoch, and may well fit."""
    use, rate = run.training_loader, run.report.throughput.samples_per_s
    if use is None or use.workers or use.epochs > 1 or not rate:
        return False
    length, dataset = use.settings.get("dataset_len"), str(use.settings.get("dataset", ""))
    if not length or dataset.rsplit(".", 1)[-1] in _KEEP_NOTHING:
        return False
    return bool(length * bytes_per_s / rate < room)


# What outlives a training step together with its graph: lists and sums that begin before the loop.


def in_source(code: Code) -> Iterator[FoundInSource]:
    """Only where it can be seen when the holder begins: before the loop, or outside of a function that a step calls."""
    for region in code.training.regions:
        tensors = code.tensors.of(region)
        losses = _backward_of(region)
        begun = _names_reset_in(region)
        for point in region.main_path():
            found = _keeps(point.node)
            if found is None:
                continue
            holder, value = found
            if dotted_name(value) not in losses or tensors.of(value) == "host" or tensors.of(value) == "device":
                continue  # only what is certain: the very loss that backward starts from
            if holder.split(".")[0] in begun or holder in begun or holder in losses or not _outlives(holder, region):
                continue
            what, module = short_text(value, 30), region.module
            edit = replace_node(module, value, f"{source_text(module, value)}.detach()")
            yield found_in_step(
                region,
                point.node,
                message("me701.source_cause", holder=holder, value=what, step=step_of(region)),
                message("me701.source_change", value=what),
                title=message("me701.source_title"),
                severity="high",
                # Not a safe one: printed, such a tensor no longer names its grad_fn, and no later backward can start
                # from it.
                fix=Fix(verbatim(f"{what}.detach()"), (edit,), is_safe=False),
            )


def _outlives(holder: str, region: Region) -> bool:
    """In a function that the step calls: an attribute of its object, or something of the module."""
    root, plain = holder.split(".")[0], region.function.definition
    if region.loop is not None or plain is None or (root == "self" and "." in holder):
        return True
    return root not in region.function.bindings and root not in parameters(plain)


def _keeps(node: ast.AST) -> tuple[str, ast.expr] | None:
    """Who keeps what: `xs.append(x)`, `s += x`, `s = s + x`, and the same for each of a list."""
    if is_call(node, "append") and isinstance(node.func, ast.Attribute):
        holder = dotted_name(node.func.value)
        return (holder, node.args[0]) if holder and len(node.args) == 1 else None
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        holder = dotted_name(node.target)
        return (holder, node.value) if holder else None
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
        holder = dotted_name(node.targets[0])
        if holder and dotted_name(node.value.left) == holder:
            return holder, node.value.right
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.ListComp) and len(node.value.generators) == 1:
        return _elementwise_sum(dotted_name(node.targets[0]), node.value)
    return None


def _elementwise_sum(holder: str, sums: ast.ListComp) -> tuple[str, ast.expr] | None:
    """`totals = [total + loss for total, loss in zip(totals, losses)]`."""
    over = sums.generators[0].iter
    adds = isinstance(sums.elt, ast.BinOp) and isinstance(sums.elt.op, ast.Add)
    if not adds or not isinstance(over, ast.Call) or called_name(over) != "zip" or len(over.args) != 2:
        return None
    others = [arg for arg in over.args if dotted_name(arg) != holder]
    return (holder, others[0]) if holder and len(others) == 1 else None


def _backward_of(region: Region) -> set[str]:
    """Names that backward is called on; `scaler.scale(loss).backward()` and `accelerator.backward(loss)` too."""
    found = set()
    for point in region.main_path():
        call = point.node
        if is_call(call, "backward") and isinstance(call.func, ast.Attribute):
            of: ast.expr = call.func.value
            if isinstance(of, ast.Call) and of.args:
                of = of.args[0]
            found |= {name for value in (of, *call.args) if (name := dotted_name(value))}
    return found


def _names_reset_in(region: Region) -> set[str]:
    """Names that each turn begins anew, empties, or hands on."""
    found: set[str] = set()
    for statement in region.body:
        for node in walk_scope(statement):
            if isinstance(node, ast.Assign) and not _keeps(node):
                for target in node.targets:
                    found |= bound_names(target) | ({dotted_name(target)} if dotted_name(target) else set())
            elif isinstance(node, ast.Call):
                if isinstance(node.func, ast.Attribute) and node.func.attr in _EMPTYING:
                    found.add(dotted_name(node.func.value))
                elif called_name(node) in ("sum", "stack", "cat", "backward"):
                    found |= {dotted_name(given) for given in node.args if dotted_name(given)}
            elif isinstance(node, ast.Delete):
                found |= {dotted_name(target) for target in node.targets}
    return found
