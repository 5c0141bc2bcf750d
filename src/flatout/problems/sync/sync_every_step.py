"""The host reads a result from the GPU in every step, which is a sync.

What it is: `.item()`, `.cpu()`, `.tolist()`, `float(loss)` or `if tensor:` on a GPU tensor in the training step.

Why the GPU idles: the call returns only when the GPU has finished all queued work. The host then starts the next step
with an empty queue, and the GPU waits for the first launches.

How it shows in a run: time in `sync` at these lines, and a GPU whose queue is found empty.

How it shows in source: `.item()`, `.cpu()`, `.tolist()`, `float(…)`, a comparison, or printing, of a tensor that the
model made, in code that every step runs; not behind `if step % k == 0`, in evaluation, or after the loop.

The fix: keep results on the GPU and read them rarely. Before: `total += loss.item()`; after: `total += loss.detach()`,
and `total.item()` every 100 steps. For logging, `.to("cpu", non_blocking=True)` and read a step later.

What to expect: host and GPU overlap again; the step takes as long as the slower of the two. All syncs of a step have
to go: the next one waits for what the removed one would have waited for.

When it is fine: the GPU is busy all the time anyway, or it happens once in many steps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.problems.found import FoundInRun, FoundInSource, found_in_step, step_of
from flatout.problems.sync.waits import RESULTS, is_per_parameter, report_waits, sites_of, timed_ms
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.source import Edit, Fix
from flatout.source.code import Code
from flatout.source.syntax.edits import replace_node, source_text
from flatout.source.syntax.module import Function
from flatout.source.syntax.nodes import called_name, is_call, short_text, walk_body
from flatout.source.training.syncs import Sync

CODE = "SY301"
REMEDY = "sync.defer"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    if not run.on_gpu:
        return
    sites = [site for site in sites_of(run, RESULTS) if not is_per_parameter(run, site)]
    wait_ms = timed_ms(run, sites)
    evidence = {
        "syncs_per_step": round(sum(site.per_step for site in sites), 2),
        "sync_ms_per_step": round(wait_ms, 2),
        "drained_share": round(run.drained_share or 0.0, 3),
    }
    yield from report_waits(run, "sy301", sites, wait_ms, evidence)


# By the operation that waits; the words of cause and change have these names.
_KINDS = {"print": "written", "format": "written", "bool": "compared", "cpu": "copied"}


# Sums of results that can stay on the GPU until they are read: `total += loss.item()` in a loop.

_COUNTS = {"eq", "ne", "gt", "lt", "ge", "le", "isclose", "logical_and", "logical_or"}


def defer_read(sync: Sync, code: Code) -> tuple[Edit, ...] | None:
    """The read taken out of the sum, and put where the sum is read: only where all of its uses can be seen.

    Numbers and tensors both can be made a number again, so it holds for a loop without a single iteration as well.
    """
    function, module = sync.region.function, sync.region.module
    statement = next((point.statement for point in sync.region.main_path() if point.node is sync.node), None)
    if not isinstance(statement, ast.AugAssign) or not isinstance(statement.op, ast.Add):
        return None
    if sync.op not in ("item", "float", "int") or not code.tensors.of(sync.region).is_on_device(sync.of):
        return None
    target, kind = statement.target, _kind(sync, statement.value)
    if not isinstance(target, ast.Name) or kind is None or not _begins_with(target.id, kind, function):
        return None
    reads = _find_reads(target.id, function)
    each_step = {id(point.node) for point in sync.region.main_path()}
    if reads is None or any(id(read) in each_step for read, _ in reads):
        return None
    edits = [replace_node(module, sync.node, _detach(sync))]
    for name, above in reads:
        if isinstance(above, ast.Call) and called_name(above) == kind and above.args == [name]:
            continue
        # `f"{total=}"` shows the text of what it prints.
        rest = module.lines[(name.end_lineno or name.lineno) - 1].encode()[name.end_col_offset or 0 :]
        is_labelled = isinstance(above, ast.FormattedValue) and rest.lstrip().startswith(b"=")
        if is_labelled or source_text(module, name) != name.id:
            return None
        edits.append(replace_node(module, name, f"{kind}({name.id})"))
    return tuple(edits)


def _kind(sync: Sync, value: ast.expr) -> str | None:
    """What the sum is a sum of: floats, or counts, which stay whole only if nothing is multiplied."""
    if _is_count(sync.of):
        return "int" if value is sync.node and sync.op != "float" else None
    if sync.op == "int":
        return None
    weighted = isinstance(value, ast.BinOp) and (
        (isinstance(value.op, ast.Mult | ast.Div) and value.left is sync.node)
        or (isinstance(value.op, ast.Mult) and value.right is sync.node)
    )
    return "float" if value is sync.node or weighted else None


def _is_count(node: ast.expr) -> bool:
    """`(predicted == labels).sum()`."""
    return any(
        isinstance(inner, ast.Compare) or (isinstance(inner, ast.Call) and called_name(inner) in _COUNTS)
        for inner in ast.walk(node)
    )


def _begins_with(name: str, kind: str, function: Function) -> bool:
    """Is it only ever set to a number that a sum of that kind begins with?"""
    values = function.bindings.get(name, [])
    numbers = [value.value for value in values if isinstance(value, ast.Constant) and type(value.value) in (int, float)]
    if not values or len(numbers) != len(values):
        return False
    # `total = 0` may be a sum of losses; what begins with 0.0 is no count.
    return kind == "float" or all(isinstance(value, int) for value in numbers)


def _find_reads(name: str, function: Function) -> list[tuple[ast.Name, ast.AST]] | None:
    """All reads of a name in its function, each with what it is part of. None where others may use it, too."""
    found: list[tuple[ast.Name, ast.AST]] = []
    for node, above in _with_parents(function.node):
        if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            return None
        if not isinstance(node, ast.Name) or node.id != name:
            continue
        if isinstance(node.ctx, ast.Del) or isinstance(above, ast.For | ast.comprehension | ast.NamedExpr):
            return None
        if isinstance(node.ctx, ast.Load):
            found.append((node, above))
    own = {id(node) for node in walk_body(function.node.body)}
    if any(id(node) not in own for node, _ in found):
        return None  # a function inside has it as well
    others = (
        [other for other in function.module.functions if other is not function] if function.definition is None else []
    )
    if any(name == node.id for other in others for node in ast.walk(other.node) if isinstance(node, ast.Name)):
        return None
    return found


def _with_parents(top: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    stack = [top]
    while stack:
        above = stack.pop()
        for node in ast.iter_child_nodes(above):
            yield node, above
            stack.append(node)


def _detach(sync: Sync) -> str:
    of, text = sync.of, source_text(sync.region.module, sync.of)
    if (is_call(of, "detach")) or (isinstance(of, ast.Attribute) and of.attr == "data"):
        return text
    return (
        f"{text}.detach()"
        if isinstance(of, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
        else f"({text}).detach()"
    )


def in_source(code: Code) -> Iterator[FoundInSource]:
    for sync in code.syncs:
        if sync.over_parameters:
            continue  # reported as SY304
        kind, edits = _KINDS.get(sync.op, "read"), defer_read(sync, code)
        yield found_in_step(
            sync.region,
            sync.node,
            message(f"sy301.source_cause_{kind}", code=short_text(sync.of, 40), step=step_of(sync.region)),
            message(f"sy301.source_change_{kind}"),
            # Not a safe one: the device adds in the precision of the loss, Python in double precision.
            fix=None if edits is None else Fix(message("sy301.fix"), edits, is_safe=False),
        )
