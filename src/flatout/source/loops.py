"""Loops: what those of a file iterate over, and which loops are around a node of a training."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from flatout.source.code import Code
from flatout.source.syntax.module import Function, own_nodes, parse_text
from flatout.source.syntax.nodes import (
    DEFINITIONS,
    LOOPS,
    MAX_HOPS,
    all_arguments,
    argument,
    bound_names,
    called_name,
    dotted_name,
    is_call,
    last_name,
    names_in,
    root_name,
    targets_of,
    walk_body,
    walk_scope,
)
from flatout.source.training.loaders import Loader, loader_setting
from flatout.source.training.regions import Loop

# "modules": each iteration calls another one, and its results are put together.
Kind = Literal["elements", "samples", "parameters", "modules", "other"]

_YIELDS = (ast.Yield, ast.YieldFrom)
_STEP_CALLS = {"backward", "step", "zero_grad"}
_PARAMETERS = re.compile(r"\b(named_)?parameters\(|\.params\b|\bparams\b|\.grad\b")
# Iterated in large pieces: each iteration is real work.
_HEAVY = re.compile(r"loader|epoch|layer|block|module|stage|children|chunk|split|level|scale|steps|batches", re.I)
_LOSS = re.compile(r"loss|crit", re.I)
_GATHERS = {
    "detach", "flatten", "view", "view_as", "reshape", "numel", "size", "unsqueeze", "squeeze", "zip", "enumerate",
    "range", "len", "parameters", "named_parameters", "values", "items", "zeros_like", "strip", "split", "str",
}  # fmt: skip
_LIGHT_OWNERS = {"torch", "F", "np", "numpy", "math", "nn", "functional", "random"}


@dataclass(frozen=True, slots=True)
class TextLoop:
    """A loop or comprehension by its lines. `calls` are the functions of the same file that its iterations call."""

    first: int
    last: int
    kind: Kind
    trains: bool
    # Each iteration calls a model or another module, which may be real work.
    heavy: bool
    # Each iteration adds to one result, such as a summed loss: autograd then goes back through all iterations.
    sums_up: bool
    # Each iteration writes a part of a result: `out[i] = x[near[i]].mean(0)`.
    fills: bool
    calls: frozenset[str]

    def holds(self, line: int) -> bool:
        return self.first <= line <= self.last


@lru_cache(maxsize=64)
def find_text_loops(text: str) -> tuple[TextLoop, ...]:
    """All loops and comprehensions of a file, outer before inner; none if it is not Python."""
    tree = parse_text(text).tree
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    defined = {node.name for node in functions}
    generators = {node.name for node in functions if any(isinstance(part, _YIELDS) for part in walk_scope(node))}
    imported = {
        name.asname or name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names
    }
    return tuple(_loop(node, defined, generators, defined | imported) for node in ast.walk(tree) if _is_loop(node))


def _is_loop(node: ast.AST) -> bool:
    return isinstance(node, ast.For | ast.While | ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp)


def _loop(node: ast.AST, defined: set[str], generators: set[str], light: set[str]) -> TextLoop:
    inside = list(walk_scope(node))
    calls = [inner for inner in inside if isinstance(inner, ast.Call)]
    # What it iterates over is computed once, unless a generator makes it.
    once = _nodes_before(node)
    names = {called_name(call) for call in calls if id(call) not in once or called_name(call) in generators}
    trains = any(isinstance(call.func, ast.Attribute) and call.func.attr in _STEP_CALLS for call in calls)
    nested = any(_is_loop(part) for part in inside if part is not node)
    heavy = any(_is_heavy(call, light) for call in calls)
    return TextLoop(
        first=node.lineno,  # type: ignore[attr-defined]
        last=node.end_lineno,  # type: ignore[attr-defined]
        kind=_kind(node, inside, nested, heavy),
        trains=trains,
        heavy=heavy,
        sums_up=_sums_up(inside, calls),
        fills=any(
            isinstance(part, ast.Assign)
            and isinstance(part.targets[0], ast.Subscript)
            and isinstance(part.value, ast.Call)
            for part in inside
        ),
        calls=frozenset(names & defined),
    )


def _nodes_before(node: ast.AST) -> set[int]:
    """Those that run once, before the first iteration."""
    generators = getattr(node, "generators", [])
    over = node.iter if isinstance(node, ast.For) else generators[0].iter if generators else None
    return set() if over is None else {id(part) for part in ast.walk(over)}


def _kind(node: ast.AST, inside: list[ast.AST], nested: bool, heavy: bool) -> Kind:
    # What it binds, and what it iterates over.
    parts = [node] if isinstance(node, ast.For) else getattr(node, "generators", [])
    iterations: list[tuple[ast.expr, ast.expr]] = [(part.target, part.iter) for part in parts]
    over = " ".join(ast.unparse(iterated) for _, iterated in iterations)
    targets = {name for target, _ in iterations for name in names_in(target)}
    # A key picks a whole tensor, not an element of one.
    picking = targets - {name for target, iterated in iterations for name in _keys(target, iterated)}
    if isinstance(node, ast.While) or not targets or _only_gathers(node, inside):
        return "other"
    if _PARAMETERS.search(over):
        return "parameters"
    functions = [part.func for part in inside if isinstance(part, ast.Call)]
    called = {root_name(func) for func in functions if isinstance(func, ast.Name | ast.Subscript)}
    if called & targets and not _is_recurrent(inside) and (not isinstance(node, ast.For) or _puts_together(inside)):
        return "modules"
    if called & targets or _HEAVY.search(over) or _is_recurrent(inside):
        return "other"
    picks = _indexes_by(inside, picking)
    if not heavy and (picks or nested or _goes_over_values(iterations)):
        return "elements" if nested else "samples"
    return "samples" if picks else "other"


def _keys(target: ast.expr, iterated: ast.expr) -> set[str]:
    """The names that a loop over a dict binds to its keys: `for name, weight in weights.items()`."""
    if is_call(iterated, "items") and isinstance(target, ast.Tuple) and target.elts:
        return names_in(target.elts[0])
    return names_in(target) if is_call(iterated, "keys") else set()


def _puts_together(inside: list[ast.AST]) -> bool:
    """Does each iteration write a part of a result, or add to a list?"""
    return any(
        (isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Subscript))
        or (isinstance(part, ast.Call) and called_name(part) == "append")
        for part in inside
    )


def _only_gathers(node: ast.AST, inside: list[ast.AST]) -> bool:
    """Does a comprehension only list tensors or views of them, for one operation on all?"""
    if isinstance(node, ast.For):
        return False
    works = (part for part in inside if isinstance(part, ast.Call | ast.BinOp))
    return all(isinstance(call, ast.Call) and called_name(call) in _GATHERS for call in works)


def _indexes_by(inside: list[ast.AST], targets: set[str]) -> bool:
    """Is something indexed by the loop's own variable: `x[i]`, `x[i:i + 1]`, `x[b, y]`?"""
    for node in inside:
        if not isinstance(node, ast.Subscript):
            continue
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for part in parts:
            if isinstance(part, ast.Slice):
                low, high = (ast.unparse(end) if end is not None else "" for end in (part.lower, part.upper))
                if low in targets and high == f"{low} + 1":
                    return True
            elif names_in(part) & targets:
                return True
    return False


def _goes_over_values(iterations: list[tuple[ast.expr, ast.expr]]) -> bool:
    """`for a, b in zip(pred, target)`, `for v in values`, `.tolist()`: one value or row at a time."""
    texts = [ast.unparse(iterated) for _, iterated in iterations]
    is_name = any(isinstance(iterated, ast.Name) for _, iterated in iterations)
    return is_name or any(text.startswith(("zip(", "enumerate(")) or text.endswith(".tolist()") for text in texts)


def _is_recurrent(inside: list[ast.AST]) -> bool:
    """`h = cell(x[t], h)`: each iteration needs the one before, so they cannot be vectorized."""
    for node in inside:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            parts = [part for target in node.targets for part in getattr(target, "elts", [target])]
            made = {root_name(part) for part in parts}
            taken = {name for value in all_arguments(node.value) for name in names_in(value)}
            stacked = isinstance(node.value.func, ast.Attribute) and root_name(node.value.func) in _LIGHT_OWNERS
            if made & taken and not stacked:
                return True
    return False


def _sums_up(inside: list[ast.AST], calls: list[ast.Call]) -> bool:
    names = {called_name(call) for call in calls}
    plain = {call.func.id for call in calls if isinstance(call.func, ast.Name)} & {"float", "int"}
    if plain or names & {"item", "tolist", "detach"}:
        return False  # plain numbers, without autograd
    # What each iteration begins anew adds up nothing over the loop.
    begun = {
        target.id
        for node in inside
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id not in names_in(node.value)
    }
    for node in inside:
        target = next(iter(targets_of(node)), None)
        if (
            isinstance(target, ast.Name)
            and target.id not in begun
            and (
                isinstance(node, ast.AugAssign)
                or (
                    isinstance(node, ast.Assign)
                    and isinstance(node.value, ast.BinOp)
                    and target.id in names_in(node.value)
                )
            )
        ):
            return True
    return "append" in names


def _is_heavy(call: ast.Call, light: set[str]) -> bool:
    """Is it a call of a model or module held in a variable or an attribute of `self`?"""
    func = call.func
    if isinstance(func, ast.Name):
        known = func.id in light or hasattr(builtins, func.id) or bool(_LOSS.search(func.id))
        return not known
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self":
        return func.attr not in light and not _LOSS.search(func.attr)
    return False


# Loops around and inside a training.


def enclosing_loops(node: ast.AST, function: Function) -> list[Loop]:
    """The loops of a function around a node, outer first."""
    found: list[Loop] = []
    for parent, child in function.module.ancestors(node):
        if parent is function.node:
            return found[::-1]
        if isinstance(parent, DEFINITIONS):
            break
        if isinstance(parent, LOOPS) and any(child is statement for statement in parent.body):
            found.append(parent)
    return []


def repeats_training(loop: Loop, function: Function, code: Code) -> bool:
    """Is it a training loop, or does it contain or call one?"""
    loops = {id(training_loop): of for training_loop, of in code.training.loops}
    if id(loop) in loops:
        return True
    holders = {id(of) for of in loops.values()}
    for node in walk_scope(loop):
        if id(node) in loops:
            return True
        if isinstance(node, ast.Call) and any(id(f) in holders for f in code.project.resolve(node, function)):
            return True
    return False


def names_changed_in(loops: Sequence[Loop]) -> set[str]:
    """Names that change in each iteration: loop variables, counters, and names computed from those."""
    names: set[str] = set()
    for loop in loops:
        if isinstance(loop, ast.For | ast.AsyncFor):
            names |= bound_names(loop.target)
        for _ in range(2):
            for node in walk_scope(loop):
                if isinstance(node, ast.AugAssign):
                    names |= bound_names(node.target)
                elif isinstance(node, ast.Assign) and names_in(node.value) & names:
                    for target in node.targets:
                        names |= bound_names(target)
                elif isinstance(node, ast.For | ast.AsyncFor) and node is not loop and names_in(node.iter) & names:
                    names |= bound_names(node.target)
    return names


# Epochs: is a loader iterated repeatedly, by which loop, and with how many workers?


_LOADER = re.compile(r"loader|(^|_)dl$|batches|train_iter|data_iter", re.I)
_BY_A_FRAMEWORK = "train_dataloader"
_MOST = 60


def find_epoch_loop(loader: Loader, code: Code) -> tuple[Loop, Function] | None:
    """The loop around the iterations over a loader; None if there is none, or if it makes a new loader each time."""
    for loop, function in find_loops_over(loader, code):
        around = _innermost_around(loop, function, code, 0)
        if around is not None and not _makes_loader(around, loader, code):
            return around
    return None


def is_framework_loader(loader: Loader) -> bool:
    """Does a framework make it once and iterate over it in every epoch, as Lightning does?"""
    return loader.function.name == _BY_A_FRAMEWORK and loader.function.owner is not None


def known_workers(loader: Loader, code: Code) -> int | None:
    """How many, if known; 1 stands for one per processor. None if it may be 0."""
    given = loader_setting(loader, "num_workers", code.values)
    if given.state == "missing":
        return 0
    if given.value is not None:
        return given.value.value if isinstance(given.value.value, int) else None
    node = argument(loader.call, "num_workers")
    return 1 if node is not None and counts_processors(node) else None


def counts_processors(node: ast.expr) -> bool:
    """`os.cpu_count()`, or an expression with it."""
    return any(is_call(call, "cpu_count") for call in ast.walk(node))


def find_loops_over(loader: Loader, code: Code) -> Iterator[tuple[Loop, Function]]:
    """Training loops over it, and loops of generators that yield its batches."""
    for loop, function in code.training.loops:
        if isinstance(loop, ast.For | ast.AsyncFor) and _iterates_over(loop.iter, function, loader, code):
            yield loop, function
    yield from _loops_of_generators(loader, code)


def _iterates_over(over: ast.expr, function: Function, loader: Loader, code: Code) -> bool:
    """Does a loop over this iterate over the loader? If its names cannot be followed, by how they are called."""
    if is_call(over, "range"):
        return False
    names = [node for node in ast.walk(over) if isinstance(node, ast.Name | ast.Attribute) and dotted_name(node)]
    made = {id(call) for node in names for call in _loaders_of(dotted_name(node), function, code, 0, set())}
    if made:
        return id(loader.call) in made
    if not code.training.are_together(function.module, loader.function.module):
        return False
    return any(_LOADER.search(last_name(name)) for name in names)


def _loaders_of(name: str, function: Function, code: Code, depth: int, seen: set[tuple[str, int]]) -> list[ast.Call]:
    """Calls of DataLoader that a name may be bound to."""
    if depth > MAX_HOPS or (name, id(function)) in seen:
        return []
    seen.add((name, id(function)))
    return _in_values(code.project.sources(name, function), code, depth, seen)


def _in_values(
    values: Iterable[tuple[ast.expr, Function]], code: Code, depth: int, seen: set[tuple[str, int]]
) -> list[ast.Call]:
    found = []
    for value, function in values:
        for node in ast.walk(value):
            if isinstance(node, ast.Call):
                if called_name(node) == "DataLoader":
                    found.append(node)
                    continue
                for callee in code.project.resolve(node, function):
                    returned = [value for value in callee.returned() if value is not None]
                    if depth < MAX_HOPS and ("return", id(callee)) not in seen:
                        seen.add(("return", id(callee)))
                        found += _in_values([(r, callee) for r in returned], code, depth + 1, seen)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and dotted_name(node):
                found += _loaders_of(dotted_name(node), function, code, depth + 1, seen)
    return found


def _loops_of_generators(loader: Loader, code: Code) -> Iterator[tuple[Loop, Function]]:
    """`def forever(loader): while True: for batch in loader: yield batch`, called where the loader is."""
    holders = {id(function): function for _, function in code.training.loops} | {id(loader.function): loader.function}
    for function in holders.values():
        if not code.training.are_together(function.module, loader.function.module):
            continue
        for call in function.calls:
            for callee in code.project.resolve(call, function) if call.args or call.keywords else ():
                for loop in own_nodes(callee):
                    if not isinstance(loop, ast.For):
                        continue
                    yields = any(isinstance(node, ast.Yield) for node in walk_scope(loop))
                    if yields and _iterates_over(loop.iter, callee, loader, code):
                        yield loop, callee


def _innermost_around(node: ast.AST, function: Function, code: Code, depth: int) -> tuple[Loop, Function] | None:
    around = enclosing_loops(node, function)
    if around:
        return around[-1], function
    if function.definition is None or depth > MAX_HOPS:
        return None
    for call, caller in code.project.callers(function)[:10]:
        found = _innermost_around(call, caller, code, depth + 1)
        if found is not None:
            return found
    return None


def _makes_loader(around: tuple[Loop, Function], loader: Loader, code: Code) -> bool:
    """Is the loader made in the body of this loop, or by what that calls?"""
    loop, function = around
    nodes = list(walk_body(loop.body))
    if any(is_call(node, "DataLoader") for node in nodes):
        return True  # this one, or another in its place
    waiting = [(call, function) for call in nodes if isinstance(call, ast.Call)]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST:
        call, inside = waiting.pop()
        for callee in code.project.resolve(call, inside):
            if callee is loader.function:
                return True
            if id(callee) not in seen:
                seen.add(id(callee))
                waiting += [(inner, callee) for inner in callee.calls]
    return False
