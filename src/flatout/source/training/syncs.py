"""Syncs: where a training step reads a result from the device, and so waits for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.source.flow.devices import moves_to, uses_device
from flatout.source.flow.guards import ProgramPoint
from flatout.source.syntax.nodes import (
    all_arguments,
    argument,
    bound_names,
    called_name,
    dotted_name,
    last_name,
    root_name,
)
from flatout.source.training.cadence import tests_in_region
from flatout.source.training.regions import Region, Training
from flatout.source.training.tensors import Kind, RegionTensors, Tensors

# Functions that print their arguments, or turn them into text.
_WRITERS = {
    "print", "info", "warning", "write", "set_description", "set_postfix", "set_postfix_str", "add_scalar",
    "add_scalars", "log_metric", "log_metrics", "log_scalar", "str", "repr", "format", "error",
    "report_scalar", "log_value",
}  # fmt: skip
_LOGS = re.compile(r"(^|\.)(wandb|mlflow|run|experiment|wandb_run)\.(log|track)$")
# Attributes of results that are certainly tensors: `outputs.loss`.
_RESULT = re.compile(r"loss|logits", re.I)
_NOT_A_TENSOR = re.compile(r"^(np|numpy|df|pd|math|args|cfg|config|json|sched|lr|rng|random)$|sched", re.I)
_MODULE = re.compile(r"model|net$|module|criterion|optim|state", re.I)
_PARAMETERS = re.compile(r"\b(named_)?parameters\b|\bparams\b|\bgrads\b|param_groups|state_dict\(\)")
_PLAYS = re.compile(r"(^|[._])v?(env|envs|environment|game|sim|simulator|world)\d*\.step$", re.I)
_ASKING = {"any", "all", "isnan", "isinf", "isfinite", "equal", "allclose", "is_nonzero"}


@dataclass(frozen=True, slots=True)
class Sync:
    """`op` is what reads: item, cpu, float, print, bool …; `of` is what is read."""

    region: Region
    node: ast.expr
    op: str
    of: ast.expr
    # It is done for each parameter or gradient of the model.
    over_parameters: bool


def find_syncs(training: Training, kinds: RegionTensors) -> Iterator[Sync]:
    """One for each line, in the order of the text."""
    seen: set[tuple[int, int]] = set()
    for region in training.regions:
        if not (uses_device(region.module) or uses_device(region.root.module)):
            continue
        tensors = kinds.of(region)
        points = region.main_path()
        inside = _in_comprehensions([point.node for point in points])
        for point in points:
            for op, of in _reads(point, tensors):
                node = point.node
                assert isinstance(node, ast.expr)
                if _goes_to_an_environment(node, point, region):
                    continue
                # Output behind a test of a tensor is rare, and the test itself is reported as a sync.
                if op in ("print", "format") and any(
                    _is_tensor_test(test, tensors) for test in tests_in_region(region, node)
                ):
                    continue
                # The line that reads: the last one of a chain over several lines.
                is_chain = op in ("item", "tolist", "cpu", "numpy")
                line = (node.end_lineno or node.lineno) if is_chain else node.lineno
                if (id(region.module), line) not in seen:
                    seen.add((id(region.module), line))
                    yield Sync(region, node, op, of, id(node) in inside or _goes_over_parameters(point))


def _reads(point: ProgramPoint, tensors: Tensors) -> Iterator[tuple[str, ast.expr]]:
    node = point.node
    if isinstance(node, ast.Call):
        yield from _of_call(node, tensors)
    elif isinstance(node, ast.FormattedValue) and _is_on_device(node.value, tensors):
        yield "format", node.value
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _is_text(node.left):
        # `"loss %.3f" % loss`
        for given in node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]:
            if _is_on_device(given, tensors):
                yield "format", given
                return
    is_test = isinstance(point.statement, ast.If | ast.While | ast.Assert) and point.statement.test is node
    if is_test and isinstance(node, ast.expr) and _is_tensor_test(node, tensors):
        yield "bool", node


def _is_text(node: ast.expr) -> bool:
    """`"%10s"`, `"%10s" * 4`, `"%10s" + "%.3g" * n`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _of_call(call: ast.Call, tensors: Tensors) -> Iterator[tuple[str, ast.expr]]:
    name, func = called_name(call), call.func
    if isinstance(func, ast.Attribute):
        of = func.value
        kind = tensors.of(of)
        # `.numpy()` works on the host only: after `.cpu()`, which is the sync.
        if name in ("item", "tolist") and not call.args and _may_be_tensor(kind, of, certain=name == "tolist"):
            yield name, of
        elif moves_to(call) == "host" and _may_be_tensor(kind, of) and not _is_non_blocking(call):
            yield "cpu", of
        elif dotted_name(of) == "math" and call.args and _is_on_device(call.args[0], tensors):
            yield "float", call.args[0]  # `math.isnan(loss)`
        elif name == "get_scale" and "scaler" in dotted_name(of).lower():
            yield "item", of
    elif name in ("float", "int", "bool") and len(call.args) == 1 and _is_on_device(call.args[0], tensors):
        yield name, call.args[0]
    if name == "clip_grad_norm_" and getattr(argument(call, "error_if_nonfinite", 3), "value", None) is True:
        yield "bool", call
    if name in _WRITERS or _LOGS.search(dotted_name(func)):
        for given in _written_values(call):
            if _is_on_device(given, tensors):
                yield "print" if name != "add_scalar" else name, given
                return


def _goes_to_an_environment(node: ast.expr, point: ProgramPoint, region: Region) -> bool:
    """`env.step(action.item())`: an environment on the host needs the action before anything can go on."""
    made = bound_names(point.statement) if isinstance(point.statement, ast.Assign) else set()
    for call in region.function.calls:
        if (
            called_name(call) == "step"
            and isinstance(call.func, ast.Attribute)
            and _PLAYS.search(dotted_name(call.func))
        ):
            given = [part for value in all_arguments(call) for part in ast.walk(value)]
            if any(part is node or (isinstance(part, ast.Name) and part.id in made) for part in given):
                return True
    return False


def _written_values(call: ast.Call) -> Iterator[ast.expr]:
    """Expressions that a writer turns into text: its arguments, and the values of dicts among them."""
    for given in all_arguments(call):
        if isinstance(given, ast.Dict):
            yield from given.values
        elif isinstance(given, ast.Name | ast.BinOp | ast.Subscript | ast.Call) or (
            isinstance(given, ast.Attribute) and _RESULT.search(given.attr)
        ):
            yield given


def _may_be_tensor(kind: Kind, of: ast.expr, certain: bool = False) -> bool:
    if kind == "host":
        return False
    if kind is not None:
        return not _MODULE.search(last_name(of) if dotted_name(of) else "")
    root = root_name(of)
    # `.item()` and `.cpu()` are called on tensors, but also on arrays and models, which their names tell.
    return not certain and not _NOT_A_TENSOR.search(root) and not _MODULE.search(last_name(of))


def _is_non_blocking(call: ast.Call) -> bool:
    return any(
        keyword.arg == "non_blocking" and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
        for keyword in call.keywords
    )


def _is_on_device(node: ast.expr, tensors: Tensors) -> bool:
    """Is it certainly a tensor on the device? A model is there as well, but there is nothing to wait for."""
    return tensors.is_on_device(node) and not _MODULE.search(last_name(node))


def _is_tensor_test(test: ast.expr, tensors: Tensors) -> bool:
    """`if loss > 10`, `if torch.isnan(x).any()`: only where an operand is certainly a result of the model."""
    if isinstance(test, ast.UnaryOp):
        return _is_tensor_test(test.operand, tensors)
    if isinstance(test, ast.BoolOp):
        return any(_is_tensor_test(operand, tensors) for operand in test.values)
    if isinstance(test, ast.Compare):
        if not all(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in test.ops):
            return False
        sides = [test.left, *test.comparators]
        return any(
            tensors.of(side) == "graph" or (tensors.of(side) == "device" and isinstance(side, ast.Name))
            for side in sides
            if not isinstance(side, ast.Attribute)
        )
    if isinstance(test, ast.Call) and called_name(test) in _ASKING:
        each = test.args[0] if test.args and isinstance(test.func, ast.Name) else None
        if isinstance(each, ast.GeneratorExp | ast.ListComp):
            return _is_tensor_test(each.elt, tensors) or tensors.is_on_device(each.elt)
        return tensors.is_on_device(test)
    return False


def _goes_over_parameters(point: ProgramPoint) -> bool:
    return any(
        isinstance(loop, ast.For | ast.AsyncFor) and bool(_PARAMETERS.search(ast.unparse(loop.iter)))
        for loop in point.loops
    )


def _in_comprehensions(nodes: list[ast.AST]) -> set[int]:
    """Nodes inside comprehensions over parameters."""
    found: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) and any(
            _PARAMETERS.search(ast.unparse(part.iter)) for part in node.generators
        ):
            found |= {id(inner) for inner in ast.walk(node)} - {id(node)}
    return found
