"""What is certainly given to torch.compile, and what in it the compiler cannot follow."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flatout.records.source import Related
from flatout.source.code import Code
from flatout.source.guards import each_turn
from flatout.source.module import Function, Module
from flatout.source.naming import full_name
from flatout.source.nodes import argument, callable_of, called_name, children, dotted

_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class Break:
    """`node` breaks the graph; `compiled` is where the compiling is asked for."""

    function: Function
    node: ast.expr
    compiled: Related


def breaks_in(code: Code) -> Iterator[Break]:
    seen: set[int] = set()
    for module in code.project.modules:
        is_named = "torch.compile" in module.text or ".compile(" in module.text or "import compile" in module.text
        if not is_named or "torch" not in module.text or not code.training.takes_part(module):
            continue
        for function, where in _compiled_in(module, code):
            for inside in _with_callees(function, code):
                if id(inside) in seen:
                    continue
                seen.add(id(inside))
                yield from (Break(inside, node, where) for node in _breaking(inside))


def _compiled_in(module: Module, code: Code) -> Iterator[tuple[Function, Related]]:
    """Functions, and forward passes of modules, that are compiled whatever the settings say."""
    for function in module.functions:
        for decorator in function.definition.decorator_list if function.definition is not None else ():
            if full_name(callable_of(decorator), module) == "torch.compile" and not _is_whole(decorator):
                yield function, Related(module.place(decorator), "compiled here")
    for call, function in module.calls.get("compile", ()):
        given = _given(call, module)
        if given is None or _is_whole(call) or not _is_certain(call, function):
            continue
        where = Related(module.place(call), "compiled here")
        if isinstance(given, ast.Name) and isinstance(meant := code.project.lookup(given.id, function), Function):
            yield meant, where
        elif (cls := code.project.class_of(given, function)) is not None:
            yield from ((one, where) for one in code.project.methods(cls, "forward"))


def _given(call: ast.Call, module: Module) -> ast.expr | None:
    """What is compiled: `torch.compile(model)`, `model.compile()`."""
    if full_name(call.func, module) == "torch.compile":
        return argument(call, "model", 0)
    is_method = isinstance(call.func, ast.Attribute) and dotted(call.func.value) not in ("", "re", "torch")
    # Keras has `model.compile(optimizer=…)` too.
    named = {one.arg for one in call.keywords} <= {"mode", "dynamic", "backend", "options", "fullgraph"}
    return call.func.value if is_method and named and not call.args and isinstance(call.func, ast.Attribute) else None


def _is_whole(node: ast.expr) -> bool:
    """With `fullgraph=True` a break is an error: there are none."""
    return isinstance(node, ast.Call) and argument(node, "fullgraph") is not None


def _is_certain(call: ast.Call, function: Function) -> bool:
    """Not behind a setting: only `if hasattr(torch, "compile")` and checks of the version may stand before it."""
    body: Sequence[ast.AST] = function.node.body
    while True:
        inside = next((one for one in body if any(part is call for part in ast.walk(one))), None)
        if inside is None or inside is call:
            return True
        if isinstance(inside, ast.If | ast.IfExp) and not _is_about_torch(inside.test):
            return False
        body = children(inside)


def _is_about_torch(test: ast.expr) -> bool:
    text = ast.unparse(test)
    return "hasattr(torch" in text or "torch.__version__" in text or "cuda.is_available" in text


def _with_callees(function: Function, code: Code) -> Iterator[Function]:
    """The function and what it calls, each once."""
    met, waiting = {id(function)}, [(function, 0)]
    while waiting:
        one, depth = waiting.pop()
        yield one
        for call in one.calls if depth < _DEEPEST else ():
            for callee in code.project.resolve(call, one):
                if id(callee) not in met and callee.name != "__init__" and not _is_left_out(callee):
                    met.add(id(callee))
                    waiting.append((callee, depth + 1))


def _is_left_out(function: Function) -> bool:
    """`@torch.compiler.disable`."""
    plain = function.definition
    return plain is not None and any(
        dotted(callable_of(one)).split(".")[-1] in ("disable", "disallow_in_graph", "ignore", "unused", "cache")
        for one in plain.decorator_list
    )


def _breaking(function: Function) -> Iterator[ast.expr]:
    for turn in each_turn(function.node.body, function):
        node = turn.node
        if not isinstance(node, ast.Call):
            continue
        name = called_name(node)
        of_tensor = isinstance(node.func, ast.Attribute) and name in ("item", "tolist") and not node.args
        if (
            (of_tensor and not node.keywords)
            or (isinstance(node.func, ast.Name) and name in ("print", "breakpoint"))
            or dotted(node.func) in ("torch.cuda.synchronize", "pdb.set_trace")
        ):
            yield node
