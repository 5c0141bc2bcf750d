"""Epochs: is a loader iterated repeatedly, by which loop, and with how many workers?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from flatout.source.code import Code
from flatout.source.loops import enclosing_loops
from flatout.source.syntax.module import Function, own_nodes
from flatout.source.syntax.nodes import (
    MAX_HOPS,
    argument,
    called_name,
    dotted_name,
    is_call,
    last_name,
    walk_body,
    walk_scope,
)
from flatout.source.training.loaders import Loader, loader_setting
from flatout.source.training.regions import Loop

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
