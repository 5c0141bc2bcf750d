"""The scopes of a file given as text: what each function binds and returns, and which of its loops train."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from flatout.source.syntax.nodes import DEFINITIONS, called_name, defaults, names_in, parameters, targets_of, walk_scope

# Names that say where and how a tensor is stored, not what it holds.
NEUTRAL = {"device", "dtype"}
_TRAINS = {"backward", "zero_grad"}
_LIBRARIES = {"torch", "numpy", "math"}
_CACHES = ("cache", "lru_cache", "cached_property")
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)
# Calls in the value of an attribute that is a plain setting.
_PLAIN_CALLS = {"int", "float", "tuple", "list", "len", "min", "max", "round", "str", "bool"}


@dataclass(slots=True)
class Scope:
    """One function, or the module itself."""

    file: str
    name: str
    parameters: list[str]
    # Parameters whose default is a literal.
    defaults: set[str]
    is_plain_function: bool
    is_cached: bool
    # Names that imports bring in, and those of functions imported from torch, numpy, math.
    imported: set[str]
    from_libraries: set[str]
    class_body: ast.ClassDef | None
    # Constants of the module that the function does not bind itself.
    outer_constants: set[str] = field(default_factory=set)
    # All nodes but those of functions defined inside.
    nodes: list[ast.AST] = field(default_factory=list)
    # (name, value, statement) of every `name = value`.
    bindings: list[tuple[str, ast.expr, ast.stmt]] = field(default_factory=list)
    # Names whose binding is not followed: loop variables, `with … as`, unpacking of calls, global.
    unclear: set[str] = field(default_factory=set)
    returned: list[ast.expr] = field(default_factory=list)
    # Simple statements, and whether they are in a loop.
    statements: list[tuple[ast.stmt, bool]] = field(default_factory=list)
    # The innermost loop around each statement.
    loops: dict[int, ast.stmt] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)


def parse_scopes(file: str, text: str) -> list[Scope]:
    """The module and all its functions; none if it is not Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    imported, from_libraries = _imports(tree)
    module = Scope(file, "<module>", [], set(), False, False, imported, from_libraries, None)
    _fill(module, tree.body)
    once = [name for name, _, node in module.bindings if id(node) not in module.loops]
    literal = {name for name, value, node in module.bindings if once.count(name) == 1 and _is_literal(value)}
    rebound = {name for name, _, node in module.bindings if id(node) in module.loops} | module.unclear
    scopes = [module]
    for function, owner in _functions(tree, None):
        scope = _of_function(file, function, owner, imported, from_libraries)
        # An inner function may use what is bound in the outer one.
        scope.is_plain_function &= function in tree.body
        scope.outer_constants = literal - rebound - scope.bound - set(scope.parameters)
        scopes.append(scope)
    return scopes


def _imports(tree: ast.Module) -> tuple[set[str], set[str]]:
    imported, from_libraries = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {name.asname or name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {name.asname or name.name for name in node.names}
            imported |= names
            if (node.module or "").split(".")[0] in _LIBRARIES:
                from_libraries |= names
    return imported, from_libraries


def _functions(
    node: ast.AST, owner: ast.ClassDef | None
) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, ast.ClassDef | None]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child, owner
        yield from _functions(child, child if isinstance(child, ast.ClassDef) else owner)


def _of_function(
    file: str,
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    owner: ast.ClassDef | None,
    imported: set[str],
    from_libraries: set[str],
) -> Scope:
    given = function.args
    scope = Scope(
        file=file,
        name=function.name,
        parameters=parameters(function),
        defaults={name for name, value in defaults(function).items() if _is_literal(value)},
        is_plain_function=owner is None and not given.vararg and not given.kwarg,
        is_cached=any(ast.unparse(decorator).split("(")[0].endswith(_CACHES) for decorator in function.decorator_list),
        imported=imported,
        from_libraries=from_libraries,
        class_body=owner,
    )
    _fill(scope, function.body)
    return scope


def _fill(scope: Scope, body: Sequence[ast.stmt], loop: ast.stmt | None = None) -> None:
    for statement in body:
        if isinstance(statement, DEFINITIONS):
            scope.unclear.add(statement.name)
            continue
        if loop is not None:
            scope.loops[id(statement)] = loop
        if isinstance(statement, _SIMPLE):
            scope.statements.append((statement, loop is not None))
            scope.nodes += walk_scope(statement)
            _bind(scope, statement)
            continue
        is_loop = isinstance(statement, ast.For | ast.AsyncFor | ast.While)
        for name, part in ast.iter_fields(statement):
            if name in ("body", "orelse", "finalbody"):
                _fill(scope, part, statement if is_loop else loop)
            elif name in ("handlers", "cases"):
                for branch in part:
                    _fill(scope, branch.body, loop)
            else:
                _mark_unclear(scope, part)
    scope.bound = {name for name, _, _ in scope.bindings} | scope.unclear


def _is_stored_name(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _mark_unclear(scope: Scope, part: object) -> None:
    """The head of a loop, a `with` or an `if`: its bindings are not followed, its calls are."""
    for item in part if isinstance(part, list) else [part]:
        if isinstance(item, ast.AST):
            nodes = list(walk_scope(item))
            scope.nodes += nodes
            scope.unclear |= {node.id for node in nodes if _is_stored_name(node)}
        elif isinstance(item, str):
            scope.unclear.add(item)


def _bind(scope: Scope, statement: ast.stmt) -> None:
    if isinstance(statement, ast.Return):
        scope.returned += [statement.value] if statement.value is not None else []
        return
    value: ast.expr | None = getattr(statement, "value", None)
    if value is None:
        return
    for target in targets_of(statement):
        if not isinstance(target, ast.Attribute | ast.Subscript):
            scope.bindings += [(part.id, value, statement) for part in ast.walk(target) if _is_stored_name(part)]
    scope.unclear |= {node.target.id for node in walk_scope(statement) if isinstance(node, ast.NamedExpr)}


def is_training_loop(loop: ast.AST) -> bool:
    return any(isinstance(call, ast.Call) and called_name(call) in _TRAINS for call in walk_scope(loop))


def in_training_function(scope: Scope) -> bool:
    """Is the training loop in this scope, so that what is outside of it runs once? A module runs once."""
    return scope.name == "<module>" or any(is_training_loop(loop) for loop in scope.loops.values())


def is_bound_again(scope: Scope, name: str, statement: ast.stmt) -> bool:
    """`step += 1`, `x = x + 1`: is a value carried from iteration to iteration, and not set anew in each?"""
    augmented = isinstance(statement, ast.AugAssign)
    value = getattr(statement, "value", None)
    refers = augmented or (value is not None and name in names_in(value))
    loop = scope.loops.get(id(statement))
    if not refers or loop is None:
        return False
    begun_anew = [
        other
        for other_name, other_value, other in scope.bindings
        if other_name == name
        and scope.loops.get(id(other)) is loop
        and not isinstance(other, ast.AugAssign)
        and name not in names_in(other_value)
    ]
    return not begun_anew


def stored_parts(scope: Scope) -> Iterator[tuple[str, list[ast.AST]]]:
    """What is written into the value of a name: `out[i] = x`, `out += x`, `out.fill_(x)`, `rows.append(x)`."""
    for statement, _ in scope.statements:
        value: ast.AST | None = getattr(statement, "value", None)
        if value is None:
            continue
        for part in (part for target in targets_of(statement) for part in ast.walk(target)):
            if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store) and isinstance(part.value, ast.Name):
                yield part.value.id, [part.slice, value]
    for node in scope.nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            changes = node.func.attr in ("append", "extend", "insert", "update") or (
                node.func.attr.endswith("_") and not node.func.attr.endswith("__")
            )
            if changes:
                yield node.func.value.id, list(node.args)


def single_values(node: ast.AST) -> list[ast.AST]:
    """The parts of an expression that have a value."""
    return [part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.expr_context)]


def settings_of_self(scope: Scope) -> set[str]:
    """Attributes that are set in `__init__` only, to plain numbers: not modules, parameters or buffers."""
    if scope.class_body is None:
        return set()
    settings: dict[str, bool] = {}
    for function in scope.class_body.body:
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        begun = function.body if function.name == "__init__" else []
        plain = {
            id(target)
            for statement in begun
            if _is_setting(statement)
            for to in targets_of(statement)
            for target in ast.walk(to)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
                settings[node.attr] = settings.get(node.attr, True) and id(node) in plain
    return {name for name, plain in settings.items() if plain}


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_setting(statement: ast.stmt) -> bool:
    value = getattr(statement, "value", None)
    if value is None or isinstance(statement, ast.AugAssign):
        return False
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    return all(called_name(call) in _PLAIN_CALLS for call in calls)


def _is_literal(value: ast.AST) -> bool:
    allowed = (
        ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop,
        ast.expr_context,
    )  # fmt: skip
    return all(isinstance(node, allowed) for node in ast.walk(value))
