"""Small questions about syntax trees that everybody asks."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator
from typing import Any, TypeGuard

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
Def = ast.FunctionDef | ast.AsyncFunctionDef


# How many names, calls or base classes are followed one after the other. Real code hardly ever needs more than five;
# the limit ends circles, and what lies further away is not certain any more.
MAX_HOPS = 8
# The same for questions that are asked of every node of a step, or whose answer is a guess after a few hops.
FEW_HOPS = 4

# Fields whose nodes say how, not what: nobody looks for them by walking.
_SIGNS = {"ctx", "op", "ops"}
_LEAVES = {ast.Name, ast.Constant, ast.Pass, ast.Break, ast.Continue, ast.alias, ast.Global, ast.Nonlocal}


def children(node: ast.AST) -> list[ast.AST]:
    """What lies right below a node, in the order of the text. Much quicker than the module's own, and asked often."""
    found: list[ast.AST] = []
    if node.__class__ in _LEAVES:
        return found
    for name in node._fields:
        value = getattr(node, name, None)
        if value is None or name in _SIGNS:
            continue
        if value.__class__ is list:
            found += [child for child in value if isinstance(child, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def walk_scope(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all below it in the order of the text, but not what lies in functions and classes defined there."""
    stack = [node]
    while stack:
        here = stack.pop()
        yield here
        stack += [child for child in reversed(children(here)) if not isinstance(child, DEFINITIONS)]


def walk_body(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The same for all statements of a block."""
    for statement in body:
        yield from walk_scope(statement)


def own_name(node: ast.AST) -> str:
    """The name of a variable, or the last part of `a.b.c` whatever `a` is; empty for other nodes."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def called_name(call: ast.Call) -> str:
    """The last part of what is called."""
    return own_name(call.func)


def is_call(node: ast.AST | None, *names: str) -> TypeGuard[ast.Call]:
    """Is it a call of something whose last name is one of these?"""
    return isinstance(node, ast.Call) and own_name(node.func) in names


def receiver_of(node: ast.AST, methods: Container[str]) -> str:
    """The object whose method of such a name a node calls, as a chain of names; empty if it does not."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
        return dotted_name(node.func.value)
    return ""


def callable_of(node: ast.expr) -> ast.expr:
    """What is called, of a call; the expression itself otherwise: `@cache` and `@cache(3)`."""
    return node.func if isinstance(node, ast.Call) else node


def dotted_name(node: ast.AST) -> str:
    """`torch.cuda.synchronize`; empty for what is no plain chain of names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def last_name(node: ast.AST) -> str:
    """`synchronize` of `torch.cuda.synchronize`; empty for what is no plain chain of names."""
    return dotted_name(node).rpartition(".")[2]


def decorator_names(node: Def | ast.ClassDef) -> list[str]:
    """Dotted names of its decorators, with or without arguments."""
    return [dotted_name(callable_of(decorator)) for decorator in node.decorator_list]


def has_decorator(node: Def | ast.ClassDef | None, names: Container[str]) -> bool:
    """Is one of its decorators called so, wherever it comes from?"""
    return node is not None and any(name.rpartition(".")[2] in names for name in decorator_names(node))


def root_name(node: ast.AST) -> str:
    """The name an expression begins with: `x` of `x[0].grad.norm()`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def names_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def all_names_in(node: ast.AST) -> set[str]:
    """Names, and names of attributes."""
    return names_in(node) | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def bound_names(target: ast.AST) -> set[str]:
    """Names that an assignment to this target binds."""
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def all_arguments(call: ast.Call) -> list[ast.expr]:
    """What a call gives by place, then what it gives by name."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """What a call gives for a parameter by its name, or by its place."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if position is not None and len(call.args) > position:
        before = call.args[: position + 1]
        return None if any(isinstance(value, ast.Starred) for value in before) else call.args[position]
    return None


def has_star_arguments(call: ast.Call) -> bool:
    """Does it hand on more than it shows, by `*args` or `**kwargs`?"""
    return any(keyword.arg is None for keyword in call.keywords) or any(
        isinstance(given, ast.Starred) for given in call.args
    )


def parameters(function: Def) -> list[str]:
    """Names of all parameters but `*args` and `**kwargs`, those by position first."""
    given = function.args
    return [parameter.arg for parameter in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def defaults(function: Def) -> dict[str, ast.expr]:
    given = function.args
    ordered = [*given.posonlyargs, *given.args]
    last = ordered[len(ordered) - len(given.defaults) :]
    pairs = [*zip(last, given.defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return {parameter.arg: value for parameter, value in pairs if value is not None}


def targets_of(node: ast.AST) -> list[ast.expr]:
    """What a statement assigns to; nothing for other nodes."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) else []


def unpacked(target: ast.AST, value: ast.AST | None) -> list[tuple[ast.expr, ast.expr]]:
    """`a, b = x, y` as pairs; none for a target that gets its value as a whole, or from something of another length."""
    if not isinstance(target, ast.Tuple | ast.List) or not isinstance(value, ast.Tuple | ast.List):
        return []
    return list(zip(target.elts, value.elts, strict=True)) if len(target.elts) == len(value.elts) else []


def parameter_annotation(function: Def | None, name: str) -> ast.expr | None:
    """What a parameter is annotated with."""
    given = () if function is None else (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return next((parameter.annotation for parameter in given if parameter.arg == name), None)


def assigned_names(node: ast.AST) -> set[str]:
    """Names and attributes that are assigned as a whole below a node, not only in part."""
    found: set[str] = set()
    for part in walk_scope(node):
        for target in targets_of(part) if isinstance(part, ast.Assign | ast.AnnAssign) else ():
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            found |= {dotted_name(part) for part in parts if not isinstance(part, ast.Subscript)}
    return found - {""}


def registers_hook(call: ast.Call) -> bool:
    """`loss.register_hook(check)`: what is handed over runs in the backward pass."""
    return called_name(call) in ("register_hook", "register_full_backward_hook", "register_post_accumulate_grad_hook")


def literal(node: ast.AST, unknown: object = None) -> Any:
    """The value of an expression that is nothing but literals."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return unknown


def short_text(node: ast.AST, most: int = 60) -> str:
    """The node as one short line."""
    try:
        text = " ".join(ast.unparse(node).split())
    except (ValueError, RecursionError):
        return "…"
    return text if len(text) <= most else text[: most - 1] + "…"
