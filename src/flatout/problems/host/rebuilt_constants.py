"""Constants that a training step makes anew each time: copied to the device, or computed by a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.problems.host.constant_statements import find_constants
from flatout.source.code import Code
from flatout.source.flow.devices import moves_to, uses_device
from flatout.source.flow.guards import ProgramPoint
from flatout.source.project.project import Project
from flatout.source.syntax.module import Function, Module
from flatout.source.syntax.nodes import (
    LOOPS,
    bound_names,
    called_name,
    children,
    decorator_names,
    dotted_name,
    walk_scope,
)
from flatout.source.training.cadence import runs_each_step_if_enabled
from flatout.source.training.regions import Region

_FROM_HOST = {"tensor", "as_tensor", "from_numpy", "Tensor", "FloatTensor", "LongTensor"}
_MAKERS = {*_FROM_HOST, "arange", "linspace", "hann_window", "meshgrid", "array", "eye"}
# Can be made on the device as well, where nothing of theirs is on the host.
_OF_SIZES = {"zeros", "ones", "arange", "eye", "full", "linspace"}
_SHAPING = {"float", "long", "int", "half", "double", "view", "unsqueeze", "squeeze", "reshape", "repeat", "expand"}
# Classes that live as long as the training does.
_HOLDING_SETTINGS = ("Module", "Model", "Loss", "Trainer")
_DEEPEST, _ROUNDS = 2, 3


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """`node` is the call that brings the constant from the host to the device, or computes it."""

    region: Region
    statement: ast.stmt
    node: ast.Call
    is_copied: bool
    # `torch.arange(len(x)).to(device)`: how large it is may change, but nothing of it has to come from the host.
    is_of_sizes: bool = False

    @property
    def is_literal(self) -> bool:
        """`torch.tensor([0.485, 0.456], device=…)`: nothing but literals in it."""
        return self.is_copied and self.made is not None and _literal(self.made) is not None

    @property
    def is_number(self) -> bool:
        """`torch.tensor(0.0, device=…)`, `torch.tensor(0.0).to(…)`: a single number."""
        value = _literal(self.made) if self.made is not None else None
        return isinstance(value, int | float)

    @property
    def made(self) -> ast.Call | None:
        """The call of `torch.tensor`, or `x.new_tensor`, whose result is copied."""
        inner = self.node.func.value if isinstance(self.node.func, ast.Attribute) else None
        found = inner if called_name(self.node) in ("to", "cuda") else self.node
        is_made = isinstance(found, ast.Call) and called_name(found) in ("tensor", "new_tensor")
        return found if is_made and isinstance(found, ast.Call) else None


def _literal(call: ast.Call) -> object | None:
    """What a call is given, where it is one literal."""
    try:
        return ast.literal_eval(call.args[0]) if len(call.args) == 1 else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def find_rebuilt(code: Code) -> Iterator[Rebuilt]:
    candidates = list(_candidates(code))
    unclear = [
        candidate for candidate in candidates if not candidate.is_literal and not _is_of_data(candidate, code.project)
    ]
    modules = {id(module): module for candidate in unclear for module in _modules_of(candidate, code.project)}
    # Which statements are constant is worked out for whole files, so only for those that it may hang on.
    texts = tuple(sorted((module.shown, module.text) for module in modules.values()))
    built = {(constant.file, constant.first, constant.last) for constant in find_constants(texts)} if texts else set()
    known = [candidate for candidate in candidates if candidate.is_literal] + unclear
    known += [part for part in candidates if part.is_of_sizes and not any(part is other for other in known)]
    for value in known:
        at = (value.region.module.shown, value.statement.lineno, value.statement.end_lineno or 0)
        if (value.is_literal or value.is_of_sizes or at in built) and runs_each_step_if_enabled(
            value.region, value.node
        ):
            yield value


def _is_of_data(rebuilt: Rebuilt, project: Project) -> bool:
    """A method of a sample or a batch: what such an object holds differs from step to step."""
    owner = rebuilt.region.function.owner
    if owner is None or "self" not in _made_of(rebuilt.node):
        return False
    return not any(owner.name.endswith(end) or project.is_a(owner, end) for end in _HOLDING_SETTINGS)


def _candidates(code: Code) -> Iterator[Rebuilt]:
    """Statements of a step that copy something which does not obviously come from the batch."""
    seen: set[int] = set()
    for region in code.training.regions:
        on_device = uses_device(region.module) or uses_device(region.root.module)
        changing: set[str] | None = None
        for point in region.main_path():
            call, statement = point.node, point.statement
            if not isinstance(call, ast.Call) or statement is None or id(statement) in seen:
                continue
            if not isinstance(getattr(statement, "value", None), ast.expr):
                continue
            is_copied = on_device and _copies(call, region, code)
            if not is_copied and not _computes(call, point, region, code.project):
                continue
            if changing is None:
                changing = _changing(region.function)
            of_sizes = is_copied and _is_of_sizes(call)
            if _made_of(call) & changing and not of_sizes and not _is_new_list(call):
                continue
            seen.add(id(statement))
            yield Rebuilt(region, statement, call, is_copied, of_sizes)


def _copies(call: ast.Call, region: Region, code: Code) -> bool:
    """Something is brought from the host to the device here; an empty tensor, or what an object holds, is not made."""
    moves = isinstance(call.func, ast.Attribute) and (moves_to(call) == "device" or _follows(call, region, code))
    given = any(keyword.arg == "device" for keyword in call.keywords) and called_name(call) in _FROM_HOST
    made = call.func.value if moves and isinstance(call.func, ast.Attribute) else call
    is_empty = isinstance(made, ast.Call) and _literal(made) in ([], ())
    new = _is_new_list(call) and code.tensors.of(region).is_on_device(call)
    return (moves or given or new) and not is_empty and not isinstance(made, ast.Attribute)


def _follows(call: ast.Call, region: Region, code: Code) -> bool:
    """`weights.to(x)`: to wherever a tensor of the device is."""
    if called_name(call) != "to" or len(call.args) != 1 or not isinstance(call.args[0], ast.Name):
        return False
    return code.tensors.of(region).is_on_device(call.args[0])


def _is_new_list(call: ast.Call) -> bool:
    """`x.new_tensor([0.485, 0.456, 0.406])`: made on the host, whatever x is."""
    return called_name(call) == "new_tensor" and isinstance(_literal(call), list | tuple)


def _is_of_sizes(call: ast.Call) -> bool:
    """`torch.arange(1, n).float().to(device)`."""
    made = call.func.value if isinstance(call.func, ast.Attribute) and called_name(call) in ("to", "cuda") else None
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in _SHAPING:
        made = made.func.value
    if not isinstance(made, ast.Call) or any(keyword.arg == "device" for keyword in made.keywords):
        return False
    return dotted_name(made.func) in {f"torch.{name}" for name in _OF_SIZES}


def _computes(call: ast.Call, point: ProgramPoint, region: Region, project: Project) -> bool:
    """`bank = triangles(32, 129)`: all it calls is a plain function of the project, which makes tensors."""
    if not isinstance(point.statement, ast.Assign) or point.statement.value is not call:
        return False
    callees = project.resolve(call, region.function)
    if len(callees) != 1 or callees[0].owner is not None or callees[0].definition is None:
        return False
    kept = any("cache" in name for name in decorator_names(callees[0].definition))
    return not kept and any(called_name(inner) in _MAKERS for inner in callees[0].calls)


def _made_of(call: ast.Call) -> set[str]:
    """Names in what is copied; where to is of no matter."""
    if called_name(call) in ("to", "cuda") and isinstance(call.func, ast.Attribute):
        parts: list[ast.expr] = [call.func.value]
    else:
        parts = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg != "device")]
    return {name for part in parts for name in _read(part)}


def _changing(function: Function) -> set[str]:
    """Parameters, loop variables and what is made of them, `self` aside.

    Parameters may be constant all the same, but seldom are.
    """
    names = set(function.parameters) - {"self", "cls"}
    for statement in function.node.body:
        for node in walk_scope(statement):
            if isinstance(node, LOOPS) and not isinstance(node, ast.While):
                names |= bound_names(node.target)
    for _ in range(_ROUNDS):
        names |= {name for name, values in function.bindings.items() if any(names & _read(value) for value in values)}
    return names


def _read(node: ast.expr) -> set[str]:
    """Names whose values count: not those of which only the place or the type is asked."""
    found: set[str] = set()
    stack: list[ast.AST] = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, ast.Name):
            found.add(here.id)
        elif not (isinstance(here, ast.Attribute) and here.attr in ("device", "dtype")):
            stack += children(here)
    return found


def _modules_of(rebuilt: Rebuilt, project: Project) -> Iterator[Module]:
    """The file, and those of the plain functions that make what is copied."""
    yield rebuilt.region.module
    waiting = [(rebuilt.region.function, call, 0) for call in walk_scope(rebuilt.node) if isinstance(call, ast.Call)]
    while waiting:
        function, call, depth = waiting.pop()
        for callee in project.resolve(call, function):
            if callee.owner is None:
                yield callee.module
                if depth < _DEEPEST:
                    waiting += [(callee, inner, depth + 1) for inner in callee.calls]
