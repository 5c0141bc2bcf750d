"""An operation syncs with the GPU although it does not look like it.

What it is: `x[mask]`, `nonzero`, `masked_select`, `unique`, `repeat_interleave`, or a scalar on the GPU used as a size
or an index. Only the GPU knows the shape of the result, so the host has to wait for it.

Why the GPU idles: after the wait its queue is empty until the host has launched more work.

How it shows in a run: PyTorch's own sync warnings, taken in sampled steps, name the line; the host spends time in that
line though it computes nothing there.

How it shows in source: on tensors that are certainly on a GPU, in code that every step runs: `x[x > 0]`, `nonzero`,
`torch.where(mask)`, `unique`, `masked_select`, `if tensor:`, `torch.arange(lengths.max())`, `x[:n]` with an `n` on the
GPU. `x[mask] = 0` is not reported: it fills in place without a sync.

The fix: keep shapes fixed. Before: `loss = error[mask].mean()`; after: `loss = (error * mask).sum() / mask.sum()`, or
`torch.where(mask, a, b)`. Sizes and indices come from the host (`len`, `shape`), not from a tensor.

What to expect: the line costs only its launches, and the GPU keeps working. Other syncs of the step then wait longer,
so remove them as well.

When it is fine: the GPU is busy all the time anyway.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flatout.problems.found import FoundInRun, FoundInSource, found_in_step, step_of
from flatout.problems.hot_lines import ms_at
from flatout.problems.sync.waits import HIDDEN, hidden_ms, is_per_parameter, report_waits, sites_of, timed_ms
from flatout.records.evidence import Evidence
from flatout.records.message import Message, message
from flatout.source.code import Code
from flatout.source.flow.devices import uses_device
from flatout.source.flow.guards import ProgramPoint
from flatout.source.syntax.module import Function, full_name
from flatout.source.syntax.nodes import argument, bound_names, called_name, children, dotted_name, short_text, walk_body
from flatout.source.training.tensors import Tensors

CODE = "SY302"
COMES_FROM = ("HO405",)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    if not run.on_gpu:
        return
    sites = [site for site in sites_of(run, HIDDEN) if not is_per_parameter(run, site)]
    wait_ms = hidden_ms(run, sites) + timed_ms(run, [site for site in sites if site.ms is not None])
    by_cost = sorted(sites, key=lambda site: -(site.ms or ms_at(run, site.location)))
    evidence = {
        "hidden_syncs_per_step": round(sum(site.per_step for site in sites), 2),
        "wait_ms_per_step": round(wait_ms, 2),
    }
    yield from report_waits(run, "sy302", by_cost, wait_ms, evidence)


# Operations of a training step that wait for the device though they do not look it: a shape or a truth is asked for.
# Only tensors that are certainly on a device count, and only those that certainly are tensors: an attribute of a
# batch that was moved may as well be a number.

# The size of the result depends on the values.
_SIZED_BY_VALUES = {"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "bincount"}
# Give a Python truth, and no tensor.
_GIVE_TRUTH = {"equal", "allclose", "is_nonzero"}
_COMPARES = {
    "eq", "ne", "lt", "le", "gt", "ge", "bool", "isnan", "isinf", "isfinite", "logical_and", "logical_or",
    "logical_not", "logical_xor", "isin", "isclose", "greater", "less", "not_equal", "signbit",
}  # fmt: skip
_KEEPS_TYPE = {
    "view", "reshape", "flatten", "squeeze", "unsqueeze", "expand", "expand_as", "detach", "clone", "contiguous", "to",
    "cuda", "permute", "transpose", "repeat",
}  # fmt: skip
# Methods that only tensors have, or that give tensors of tensors.
_OF_TENSORS = {
    "sum", "mean", "max", "min", "amax", "amin", "norm", "abs", "any", "all", "argmax", "argmin", "prod", "std", "var",
    "median", "softmax", "log_softmax", "sigmoid", "exp", "log", "pow", "sqrt", "clamp", "float", "long", "int", "half",
    "detach", "clone", "squeeze", "unsqueeze", "view", "reshape", "flatten", "count_nonzero", "cumsum", "matmul",
    "topk", "sort", "gather", "masked_fill", "argsort", "t", "ceil", "floor", "round", *_COMPARES,
}  # fmt: skip
_SHAPED = {"view", "reshape", "expand", "repeat", "narrow", "new_zeros", "new_ones", "new_empty", "new_full"}
_MADE_OF_SIZES = {"zeros", "ones", "empty", "arange", "rand", "randn", "eye", "full", "randperm"}
# No operations: `torch.is_tensor`, `torch.get_default_dtype`.
_ASKS_ABOUT = re.compile(r"is_|get_|has_|numel$")
_MASK_NAME = re.compile(r"(^|_)masks?$", re.I)
_DEEPEST = 3


def in_source(code: Code) -> Iterator[FoundInSource]:
    """One for each line, without those that are plain reads of a result."""
    seen = {
        (id(sync.region.module), line)
        for sync in code.syncs
        for line in range(sync.node.lineno, (sync.node.end_lineno or sync.node.lineno) + 1)
    }
    for region in code.training.regions:
        if not (uses_device(region.module) or uses_device(region.root.module)):
            continue
        known = _Certain(code.tensors.of(region), region.function)
        for point in region.main_path():
            found = _of(point, known)
            if found is None:
                continue
            node, unknown, instead = found
            key = (id(region.module), node.lineno)
            if key not in seen:
                seen.add(key)
                cause = message("sy302.source_cause", code=short_text(node, 40), unknown=unknown, step=step_of(region))
                yield found_in_step(region, node, cause, instead)


_FIXED = message("sy302.keep_shape")
_FROM_HOST = message("sy302.from_host")
_ON_IT = message("sy302.decide_on_device")
# A node, what the host has to know of it, and what to write instead.
_Found = tuple[ast.expr, Message, Message]


def _of(point: ProgramPoint, known: _Certain) -> _Found | None:
    node = point.node
    if isinstance(node, ast.Subscript):
        return _of_subscript(node, point, known)
    if isinstance(node, ast.Call):
        return _of_call(node, known)
    if isinstance(node, ast.IfExp) and known.is_asked(node.test):
        return node.test, message("sy302.branch"), _ON_IT
    if (
        isinstance(point.statement, ast.If | ast.While | ast.Assert)
        and point.statement.test is node
        and known.is_asked(point.statement.test)
    ):
        return point.statement.test, message("sy302.direction"), _ON_IT
    return None


def _of_subscript(node: ast.Subscript, point: ProgramPoint, known: _Certain) -> _Found | None:
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for part in parts:
        if isinstance(part, ast.Slice):
            if any(end is not None and known.is_number(end) for end in (part.lower, part.upper)):
                return node, message("sy302.cut"), _FROM_HOST
        elif known.is_mask(part) and known.tensors.is_on_device(node.value):
            if isinstance(node.ctx, ast.Load) or _writes_tensor(node, point, known):
                return node, message("sy302.mask"), _FIXED
        elif isinstance(node.ctx, ast.Load) and known.is_list(node.value) and known.is_number(part):
            return node, message("sy302.list_element"), message("sy302.stack_index")
    return None


def _writes_tensor(node: ast.Subscript, point: ProgramPoint, known: _Certain) -> bool:
    """`x[mask] = 0` fills in place without a wait; `x[mask] = y` and `x[mask] += 1` have to know how many."""
    statement = point.statement
    if isinstance(statement, ast.AugAssign):
        return statement.target is node
    return (
        isinstance(statement, ast.Assign)
        and any(target is node for target in statement.targets)
        and known.tensors.is_on_device(statement.value)
    )


def _of_call(call: ast.Call, known: _Certain) -> _Found | None:
    name, func = called_name(call), call.func
    of_torch = known.is_of_torch(func)
    # The tensor that is worked on.
    owner = func.value if isinstance(func, ast.Attribute) else None
    subject = next(iter(call.args), None) if of_torch else owner
    if subject is not None and known.is_on_device(subject):
        if name in _SIZED_BY_VALUES or (name == "where" and of_torch and len(call.args) == 1 and not call.keywords):
            return call, message("sy302.size"), _FIXED
        if name in _GIVE_TRUTH:
            return call, message("sy302.answer"), _ON_IT
        if name == "repeat_interleave" and argument(call, "output_size") is None:
            repeats = argument(call, "repeats", 1 if of_torch else 0)
            if repeats is not None and known.tensors.is_on_device(repeats):
                return call, message("sy302.size"), message("sy302.output_size")
    sizes = [
        size for given in call.args for size in (given.elts if isinstance(given, ast.Tuple | ast.List) else [given])
    ]
    is_sized = name in _MADE_OF_SIZES if of_torch else name in _SHAPED and subject is not None
    if is_sized and any(known.is_number(size) for size in sizes):
        return call, message("sy302.size"), _FROM_HOST
    if name == "tensor" and of_torch and call.args and known.holds_numbers(call.args[0]):
        return call, message("sy302.numbers"), message("sy302.stack")
    if isinstance(func, ast.Name) and name == "range" and any(known.is_number(given) for given in call.args):
        return call, message("sy302.rounds"), _FROM_HOST
    chooses = isinstance(func, ast.Name) and name in ("max", "min") and len(call.args) > 1
    if chooses and any(known.is_tensor(given) for given in call.args):
        return call, message("sy302.larger"), message("sy302.maximum")
    return None


class _Certain:
    """What is certainly a tensor on the device, in one function."""

    def __init__(self, tensors: Tensors, function: Function) -> None:
        self.tensors = tensors
        self.function = function

    def is_of_torch(self, func: ast.expr) -> bool:
        """`torch.where`, `F.one_hot`, `th.unique`: operations of torch, by whatever name the file has for it."""
        if not isinstance(func, ast.Attribute) or _ASKS_ABOUT.match(func.attr):
            return False
        return full_name(func.value, self.function.module) in ("torch", "torch.nn.functional")

    def is_on_device(self, node: ast.expr) -> bool:
        return self.tensors.is_on_device(node)

    def is_asked(self, node: ast.expr) -> bool:
        """Is the truth of a tensor asked for here?"""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.is_asked(node.operand)
        if isinstance(node, ast.BoolOp):
            return any(self.is_asked(operand) for operand in node.values)
        return self.is_tensor(node)

    def is_tensor(self, node: ast.expr, depth: int = 0) -> bool:
        """On the device, and by its making a tensor: a result of torch, of a tensor's method, of a comparison."""
        if not self.is_on_device(node) or depth > _DEEPEST:
            return False
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                if self.is_of_torch(node.func):
                    return called_name(node) not in _GIVE_TRUTH
                return node.func.attr in _OF_TENSORS and self.is_on_device(node.func.value)
            return False
        if isinstance(node, ast.Compare | ast.BinOp | ast.UnaryOp):
            parts = [child for child in children(node) if isinstance(child, ast.expr)]
            return any(self.is_tensor(part, depth + 1) for part in parts)
        if isinstance(node, ast.Name):
            made = self.function.bindings.get(node.id, [])
            return bool(made) and all(self.is_tensor(value, depth + 1) for value in made)
        if isinstance(node, ast.Subscript):
            return self.is_tensor(node.value, depth + 1)
        return False

    def is_number(self, node: ast.expr) -> bool:
        """A tensor of the device that stands where a number is wanted: `lengths.max()`, or a name for it."""
        return self.is_tensor(node) and not self.is_mask(node)

    def holds_numbers(self, node: ast.expr) -> bool:
        if isinstance(node, ast.List | ast.Tuple):
            return any(self.is_tensor(element) for element in node.elts)
        return isinstance(node, ast.ListComp) and self.is_tensor(node.elt)

    def is_list(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Name):
            return False
        made = self.function.bindings.get(node.id, [])
        # `a, b = [f(x) for x in xs]` binds the elements, not the list.
        unpacked = any(
            isinstance(inner, ast.Tuple) and node.id in bound_names(inner)
            for inner in walk_body(self.function.node.body)
        )
        return bool(made) and not unpacked and all(isinstance(value, ast.List | ast.ListComp) for value in made)

    def is_mask(self, node: ast.expr, depth: int = 0) -> bool:
        """Truths by the way they are made: a comparison, or a name, a part or a combination of such."""
        if depth > _DEEPEST or self.tensors.of(node) == "host":
            return False
        if isinstance(node, ast.Compare):
            return self.is_on_device(node) and not any(
                isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops
            )
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            return self.is_mask(node.operand, depth + 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor):
            return self.is_mask(node.left, depth + 1) or self.is_mask(node.right, depth + 1)
        if isinstance(node, ast.Call):
            return self._makes_mask(node, depth)
        if isinstance(node, ast.Subscript):
            return self.is_mask(node.value, depth + 1)
        if isinstance(node, ast.Name):
            made = self.function.bindings.get(node.id, [])
            if made:
                return all(self.is_mask(value, depth + 1) for value in made)
            return node.id in self.function.parameters and self._is_named_mask(node, node.id)
        return isinstance(node, ast.Attribute) and self._is_named_mask(node, node.attr)

    def _makes_mask(self, call: ast.Call, depth: int) -> bool:
        name = called_name(call)
        if name in _COMPARES:
            return self.is_on_device(call)
        if name in ("BoolTensor", "ByteTensor") or any(
            keyword.arg == "dtype" and dotted_name(keyword.value) in ("torch.bool", "torch.uint8", "bool")
            for keyword in call.keywords
        ):
            return True
        if name == "to" and any(dotted_name(given) in ("torch.bool", "bool") for given in call.args):
            return self.is_on_device(call)
        return name in _KEEPS_TYPE and isinstance(call.func, ast.Attribute) and self.is_mask(call.func.value, depth + 1)

    def _is_named_mask(self, node: ast.expr, name: str) -> bool:
        """Where it is made is out of sight, but its name says it."""
        return bool(_MASK_NAME.search(name)) and self.is_on_device(node)
