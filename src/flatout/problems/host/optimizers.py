"""Optimizers in source: those of torch that a file makes, and loops over parameters that update one at a time."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from flatout.source.code import Code
from flatout.source.flow.guards import walk_main_path
from flatout.source.syntax.module import Function, Module, full_name
from flatout.source.syntax.nodes import bound_names, called_name, dotted_name, root_name, walk_scope
from flatout.source.training.cadence import runs_each_step_if_enabled
from flatout.source.training.regions import Region

# Optimizers that take `fused=`, and those that only take `foreach=`.
FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
_OTHERS = ("Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "Muon", "Adafactor")


@dataclass(frozen=True, slots=True)
class Optimizer:
    call: ast.Call
    function: Function

    @property
    def name(self) -> str:
        return called_name(self.call)

    def given(self, *names: str) -> ast.keyword | None:
        return next((keyword for keyword in self.call.keywords if keyword.arg in names), None)


def find_optimizers(module: Module) -> Iterator[Optimizer]:
    """By class, then in the order of the text."""
    if "optim" not in module.text:
        return
    for name in (*FUSED, *_OTHERS):
        for call, function in module.calls.get(name, ()):
            if full_name(call.func, module).startswith("torch.optim."):
                yield Optimizer(call, function)


# Loops over parameters.

# What a loop does to each parameter: changes its values or gradient, zeroes its gradient, clips it by its own norm.
Done = Literal["changed", "zeroed", "clipped"]

_PARAMETERS = re.compile(
    r"\b(named_)?parameters\(|\bparams\b|['\"]params['\"]|state_dict\(\)|\b(named_)?buffers\(", re.I
)
# In-place operations that compute; `requires_grad_` and `share_memory_` do not.
_IN_PLACE = {
    "add_", "sub_", "mul_", "div_", "copy_", "lerp_", "addcmul_", "addcdiv_", "clamp_", "clamp_min_", "clamp_max_",
    "sign_", "sqrt_", "neg_", "pow_", "set_", "fill_",
}  # fmt: skip
_CLIPS = {"clip_grad_norm_", "clip_grad_norm", "clip_grad_value_"}


@dataclass(frozen=True, slots=True)
class ParameterUpdate:
    # None in the `step` of an optimizer of the project, which `function` then is.
    region: Region | None
    loop: ast.For
    # The statement or call that does it.
    node: ast.AST
    done: Done
    function: Function


def find_updates(code: Code) -> Iterator[ParameterUpdate]:
    """One for each loop: the innermost one over parameters."""
    seen: set[int] = set()
    regions = [(region, region.function, region.main_path()) for region in code.training.regions]
    steps = [(None, step, walk_main_path(step.node.body, step)) for step in _steps_of_own_optimizers(code)]
    for region, function, points in (*regions, *steps):
        for point in points:
            loop = point.loops[-1] if point.loops else None
            if not isinstance(loop, ast.For) or id(loop) in seen or not goes_over_parameters(loop):
                continue
            done = _done_by(point.node, bound_names(loop.target))
            # Of an optimizer's own step only the update counts.
            if done is None or (region is None and done != "changed"):
                continue
            if region is None or runs_each_step_if_enabled(region, loop):
                seen.add(id(loop))
                yield ParameterUpdate(region, loop, point.node, done, function)


def _steps_of_own_optimizers(code: Code) -> Iterator[Function]:
    """Optimizers of the project that a training makes: calls of their `step` may not be found."""
    trains = {id(region.module): region.module for region in code.training.regions if region.call_site is None}
    for module in code.project.mentioning("Optimizer"):
        if not code.training.takes_part(module) or "def step" not in module.text:
            continue
        for cls in module.classes.values():
            if "step" not in cls.methods or not code.project.is_a(cls, "Optimizer"):
                continue
            if any(re.search(rf"(?<!class )\b{cls.name}\b", trained.text) for trained in trains.values()):
                yield cls.methods["step"]


def goes_over_parameters(loop: ast.For) -> bool:
    return bool(_PARAMETERS.search(ast.unparse(loop.iter)))


def _done_by(node: ast.AST, names: set[str]) -> Done | None:
    if isinstance(node, ast.Call):
        name, owner = called_name(node), node.func.value if isinstance(node.func, ast.Attribute) else None
        is_of_parameter = owner is not None and root_name(owner) in names
        # `p.grad.zero_`, `p.grad.data.zero_`
        if name == "zero_" and is_of_parameter and "grad" in dotted_name(node.func).split(".")[:-1]:
            return "zeroed"
        if name in _IN_PLACE and is_of_parameter:
            return "changed"
        if name in _CLIPS and node.args and root_name(node.args[0]) in names:
            return "clipped"
    elif isinstance(node, ast.AugAssign):
        target = node.target
        if isinstance(target, ast.Name) and target.id in names and not isinstance(node.value, ast.Constant):
            return "changed"  # `p -= lr * p.grad`; a counter changes by a constant
        if isinstance(target, ast.Attribute) and target.attr in ("data", "grad") and root_name(target) in names:
            return "changed"
    elif isinstance(node, ast.Assign):
        return _done_by_assignment(node, names)
    return None


def _done_by_assignment(node: ast.Assign, names: set[str]) -> Done | None:
    """`p.data = decay * p.data + …`; `p.grad = None` and `p.data = q` compute nothing."""
    target = node.targets[0]
    if not (isinstance(target, ast.Attribute) and target.attr in ("data", "grad") and root_name(target) in names):
        return None
    computes = any(isinstance(inner, ast.BinOp) for inner in walk_scope(node.value))
    return "changed" if computes and root_name(target) in {root_name(part) for part in walk_scope(node.value)} else None
