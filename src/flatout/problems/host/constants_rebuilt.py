"""The training step builds the same constant tensors again and again.

What it is: the training step makes tensors that are the same each time: a filter's kernel, a window, a grid of
coordinates, mean and deviation, class weights, made with `torch.tensor([...])`, `torch.arange(n)`, `torch.linspace`,
`torch.from_numpy(np.array(...))`, and often moved to the GPU with `.to(device)` as well.

Why the GPU idles: Python builds them element by element, each small operation is a launch, and a copy from pageable
memory waits until the GPU has reached it in its queue.

How it shows in a run: host time, or copies to the GPU, at lines that depend on literals and settings alone.

How it shows in source: a statement that every step runs, which makes a tensor of literals and settings alone and
copies it to the GPU: `torch.tensor([...], device=...)`, `x.new_tensor([...])`, `make_window(11).to(x.device)`; also
`torch.arange(n).to(device)`, which could be made there. What is made on the GPU, such as `torch.arange(9,
device=...)`, is one launch and is not reported. Or a function of your own that computes such a tensor, called in every
step.

The fix: build them once. In a module: `self.register_buffer("window", make_window(), persistent=False)` in
`__init__`; in a function: `functools.cache` on the function that makes it, with the device as an argument; what is
cheap to make on the device is made there: `torch.arange(n, device=x.device)`.

What to expect: the time in these lines goes, and the waits of their copies, as far as nothing else waits.

When it is fine: it takes less than 1% of the step, or the GPU is busy anyway.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flatout.model.edits import Edits, LessHost
from flatout.problems.found import FoundInRun, FoundInSource, found_in_step, step_of
from flatout.problems.host.constant_statements import ConstantStatement, find_constants, find_constants_in
from flatout.problems.hot_lines import host_lines, place_name
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.report import Location
from flatout.records.source import Fix
from flatout.source.code import Code
from flatout.source.flow.devices import moves_to, uses_device
from flatout.source.flow.guards import ProgramPoint
from flatout.source.project.project import Project
from flatout.source.syntax.edits import replace_node, source_text
from flatout.source.syntax.module import Function, Module
from flatout.source.syntax.nodes import (
    LOOPS,
    bound_names,
    called_name,
    children,
    decorator_names,
    dotted_name,
    is_call,
    literal,
    short_text,
    walk_scope,
)
from flatout.source.training.cadence import runs_each_step_if_enabled
from flatout.source.training.regions import Region

CODE = "HO408"
REMEDY = "memo.function"
_WORTH = 0.01
# Copies less often than this are not of every step.
_EACH_STEP = 0.5


@dataclass(frozen=True, slots=True)
class _Cost:
    """Milliseconds a step at one line of a statement that builds a constant."""

    location: Location
    host_ms: float
    copy_ms: float

    @property
    def ms(self) -> float:
        return self.host_ms + self.copy_ms


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    costs = _costs(run, find_constants(tuple(sorted(run.files.items()))))
    host_ms = sum(cost.host_ms for cost in costs)
    # Never more than the phase, which leaves evaluations out.
    copy_ms = min(sum(cost.copy_ms for cost in costs), run.phase("h2d").ms)
    if not costs or host_ms + copy_ms < _WORTH * run.step_ms:
        return
    worst = max(costs, key=lambda cost: cost.ms)
    lines = ", ".join(f"{place_name(cost.location)} {cost.ms:.2g} ms" for cost in costs[:5])
    yield FoundInRun(
        location=worst.location,
        evidence={
            "built_ms_per_step": round(host_ms, 3),
            "copied_ms_per_step": round(copy_ms, 3),
            "lines": lines,
        },
        cause=message("ho408.cause", ms=host_ms + copy_ms, step_ms=run.step_ms, line=place_name(worst.location)),
        change=message("ho408.change", lines=lines),
        edits=Edits((LessHost(host_ms, "forward"), LessHost(copy_ms, "h2d", is_sampled=False))),
    )


def _costs(run: Evidence, built: tuple[ConstantStatement, ...]) -> list[_Cost]:
    """The most expensive first."""
    whole = [statement for statement in built if statement.whole]
    host: dict[Location, float] = {}
    for line in host_lines(run):
        if _is_in(whole, line.location):
            host[line.location] = host.get(line.location, 0.0) + line.ms
    copied: dict[Location, float] = {}
    for site in run.report.copies:
        if site.per_step >= _EACH_STEP and _is_in(built, site.location):
            copied[site.location] = copied.get(site.location, 0.0) + site.ms
    costs = [_Cost(place, host.get(place, 0.0), copied.get(place, 0.0)) for place in {**host, **copied}]
    return sorted(costs, key=lambda cost: -cost.ms)


def _is_in(built: Sequence[ConstantStatement], place: Location) -> bool:
    return any(statement.holds(place.file, place.line) for statement in built)


# Constants that a training step makes anew each time: copied to the GPU, or computed by a function.

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
        is_made = is_call(found, "tensor", "new_tensor")
        return found if is_made and isinstance(found, ast.Call) else None


def _literal(call: ast.Call) -> object | None:
    """What a call is given, where it is one literal."""
    return literal(call.args[0]) if len(call.args) == 1 else None


def find_rebuilt(code: Code) -> Iterator[Rebuilt]:
    candidates = list(_candidates(code))
    unclear = [
        candidate for candidate in candidates if not candidate.is_literal and not _is_of_data(candidate, code.project)
    ]
    modules = {id(module): module for candidate in unclear for module in _modules_of(candidate, code.project)}
    # Which statements are constant is worked out for whole files, so only for those that it may depend on.
    built = {(constant.file, constant.first, constant.last) for constant in find_constants_in(modules.values())}
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
    if owner is None or "self" not in _names_copied(rebuilt.node):
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
                changing = _changing_names(region.function)
            of_sizes = is_copied and _is_of_sizes(call)
            if _names_copied(call) & changing and not of_sizes and not _is_new_list(call):
                continue
            seen.add(id(statement))
            yield Rebuilt(region, statement, call, is_copied, of_sizes)


def _copies(call: ast.Call, region: Region, code: Code) -> bool:
    """Something is brought from the host to the device here; an empty tensor, or what an object holds, is not made."""
    tensors = code.tensors.of(region)
    # `weights.to(x)`: to wherever a tensor of the device is.
    is_like = is_call(call, "to") and len(call.args) == 1 and isinstance(call.args[0], ast.Name)
    follows = is_like and tensors.is_on_device(call.args[0])
    moves = isinstance(call.func, ast.Attribute) and (moves_to(call) == "device" or follows)
    given = any(keyword.arg == "device" for keyword in call.keywords) and called_name(call) in _FROM_HOST
    made = call.func.value if moves and isinstance(call.func, ast.Attribute) else call
    is_empty = isinstance(made, ast.Call) and _literal(made) in ([], ())
    new = _is_new_list(call) and tensors.is_on_device(call)
    return (moves or given or new) and not is_empty and not isinstance(made, ast.Attribute)


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


def _names_copied(call: ast.Call) -> set[str]:
    """Names in what is copied, not in where it is copied to."""
    if called_name(call) in ("to", "cuda") and isinstance(call.func, ast.Attribute):
        parts: list[ast.expr] = [call.func.value]
    else:
        parts = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg != "device")]
    return {name for part in parts for name in _read_names(part)}


def _changing_names(function: Function) -> set[str]:
    """Parameters, loop variables and what is made of them, `self` aside.

    Parameters may be constant, but rarely are.
    """
    names = set(function.parameters) - {"self", "cls"}
    for statement in function.node.body:
        for node in walk_scope(statement):
            if isinstance(node, LOOPS) and not isinstance(node, ast.While):
                names |= bound_names(node.target)
    for _ in range(_ROUNDS):
        names |= {
            name for name, values in function.bindings.items() if any(names & _read_names(value) for value in values)
        }
    return names


def _read_names(node: ast.expr) -> set[str]:
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


def in_source(code: Code) -> Iterator[FoundInSource]:
    for constant in find_rebuilt(code):
        way = "sizes" if constant.is_of_sizes else "copied" if constant.is_copied else "computed"
        better = "_sizes" if constant.is_of_sizes else "_number" if constant.is_number else ""
        yield found_in_step(
            constant.region,
            constant.node,
            message(f"ho408.source_cause_{way}", code=short_text(constant.node, 40), step=step_of(constant.region)),
            message(f"ho408.source_change{better}"),
            fix=_fix(constant) if constant.is_number and constant.made is constant.node else None,
        )


def _fix(constant: Rebuilt) -> Fix | None:
    """The same value, type and place, without the copy."""
    module, func, number = constant.region.module, constant.node.func, constant.node.args[0]
    if not isinstance(func, ast.Attribute):
        return None
    edits = (
        replace_node(module, func, f"{source_text(module, func.value)}.full"),
        replace_node(module, number, f"(), {source_text(module, number)}"),
    )
    return Fix(message("ho408.fix"), edits, is_safe=True)
