"""Statements that build the same tensor every time, told from the source alone."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from flatout.source.syntax.module import Function, Module, parse_text
from flatout.source.syntax.nodes import (
    DEFINITIONS,
    LOOPS,
    bound_names,
    called_name,
    decorator_names,
    defaults,
    dotted_name,
    has_star_arguments,
    is_call,
    names_in,
    own_name,
    targets_of,
    walk_scope,
)

_LIBRARIES = {"torch", "np", "numpy", "math", "F", "functional"}
_MAKERS = {
    "tensor", "as_tensor", "arange", "linspace", "logspace", "eye", "ones", "full", "meshgrid", "from_numpy", "array",
    "asarray", "hann_window", "hamming_window", "blackman_window", "kaiser_window", "bartlett_window", "tril_indices",
    "triu_indices", "identity", "hanning", "hamming", "kaiser", "indices", "mgrid", "Tensor", "FloatTensor",
    "LongTensor", "new_tensor", "new_ones", "new_full",
}  # fmt: skip
_OF_RECEIVER = {"new_tensor", "new_ones", "new_full", "new_zeros"}
_BUILTINS = {
    "range", "len", "list", "tuple", "int", "float", "min", "max", "sum", "abs", "round", "enumerate", "zip", "sorted",
    "reversed", "bool",
}  # fmt: skip
_BY_CHANCE = ("rand", "normal", "shuffle", "perm", "multinomial", "bernoulli", "uniform", "choice", "dropout", "empty")
# Names, and arguments, that say where and how a tensor is stored, not what it holds.
_NEUTRAL = {"device", "dtype"}
_PLACES = {"device", "dtype", "layout", "pin_memory", "non_blocking", "copy", "memory_format"}
_MOVES = {"to", "cuda", "type_as", "type"}
_SETTINGS = {"args", "cfg", "conf", "config", "opt", "opts", "options", "hparams"}
# Calls in the value of an attribute that is a plain setting.
_PLAIN_CALLS = {"int", "float", "tuple", "list", "len", "min", "max", "round", "str", "bool"}
_CACHES = ("cache", "lru_cache", "cached_property")
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)
_PLAIN = (
    ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Subscript, ast.Slice,
    ast.IfExp, ast.Starred, ast.operator, ast.unaryop, ast.cmpop, ast.boolop,
)  # fmt: skip
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class ConstantStatement:
    """A statement that builds a constant and copies nothing else. `whole`: it does nothing else at all."""

    file: str
    first: int
    last: int
    whole: bool

    def holds(self, file: str, line: int) -> bool:
        return self.file == file and self.first <= line <= self.last


@lru_cache(maxsize=16)
def find_constants(files: tuple[tuple[str, str], ...]) -> tuple[ConstantStatement, ...]:
    """All such statements in files, given by name and text."""
    return find_constants_in([parse_text(text, file) for file, text in files])


def find_constants_in(modules: Iterable[Module]) -> tuple[ConstantStatement, ...]:
    known = _Known([scope for module in modules for scope in _scopes_of(module)])
    return tuple(built for scope in known.scopes for built in known.built(scope))


class _Scope:
    """One function, or the module itself: what it binds, and in which of its loops."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.name = function.name
        self.file = function.module.shown
        self.parameters = function.parameters
        # Names that imports bring in, and those of functions imported from torch, numpy, math.
        self.imported = function.module.imports
        self.from_libraries = {
            name
            for name, brought in self.imported.items()
            if brought.attribute is not None and brought.module.split(".")[0] in ("torch", "numpy", "math")
        }
        # All nodes but those of functions defined inside; simple statements; the innermost loop around each statement.
        self.nodes: list[ast.AST] = []
        self.statements: list[ast.stmt] = []
        self.loops: dict[int, ast.stmt] = {}
        # (name, value, statement) of every `name = value`.
        self.bindings: list[tuple[str, ast.expr, ast.stmt]] = []
        # Names whose binding is not followed: loop variables, `with … as`, unpacking of calls, global.
        self.unclear: set[str] = set()
        self.returned: list[ast.expr] = []
        self._fill(function.node.body, None)
        self.bound = {name for name, _, _ in self.bindings} | self.unclear
        # Constants of the module that the function does not bind itself.
        self.outer_constants: set[str] = set()

    @property
    def is_plain_function(self) -> bool:
        """Not a method, and not one inside another, which may use what is bound there."""
        plain = self.function.definition
        is_outermost = plain is not None and plain in self.function.module.tree.body
        return plain is not None and is_outermost and not plain.args.vararg and not plain.args.kwarg

    @property
    def runs_once(self) -> bool:
        """Is it the module, or does it hold the training loop, so that what is outside of that runs once?"""
        return self.function.definition is None or any(
            is_call(call, "backward", "zero_grad") for loop in self.loops.values() for call in walk_scope(loop)
        )

    def _fill(self, body: Sequence[ast.stmt], loop: ast.stmt | None) -> None:
        for statement in body:
            if isinstance(statement, DEFINITIONS):
                self.unclear.add(statement.name)
                continue
            if loop is not None:
                self.loops[id(statement)] = loop
            if isinstance(statement, _SIMPLE):
                self.statements.append(statement)
                self.nodes += walk_scope(statement)
                self._bind(statement)
                continue
            inside = statement if isinstance(statement, LOOPS) else loop
            for name, part in ast.iter_fields(statement):
                if name in ("body", "orelse", "finalbody"):
                    self._fill(part, inside)
                elif name in ("handlers", "cases"):
                    for branch in part:
                        self._fill(branch.body, loop)
                else:
                    self._mark_unclear(part)

    def _mark_unclear(self, part: object) -> None:
        """The head of a loop, a `with` or an `if`: its bindings are not followed, its calls are."""
        for item in part if isinstance(part, list) else [part]:
            if isinstance(item, ast.AST):
                self.nodes += walk_scope(item)
                self.unclear |= {
                    node.id
                    for node in walk_scope(item)
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                }
            elif isinstance(item, str):
                self.unclear.add(item)

    def _bind(self, statement: ast.stmt) -> None:
        value: ast.expr | None = getattr(statement, "value", None)
        if isinstance(statement, ast.Return):
            self.returned += [value] if value is not None else []
            return
        if value is None:
            return
        for target in targets_of(statement):
            if not isinstance(target, ast.Attribute | ast.Subscript):
                self.bindings += [(name, value, statement) for name in bound_names(target)]
        self.unclear |= {node.target.id for node in walk_scope(statement) if isinstance(node, ast.NamedExpr)}

    def is_bound_again(self, name: str, statement: ast.stmt) -> bool:
        """`step += 1`, `x = x + 1`: is a value carried from iteration to iteration, and not set anew in each?"""
        value, loop = getattr(statement, "value", None), self.loops.get(id(statement))
        refers = isinstance(statement, ast.AugAssign) or (value is not None and name in names_in(value))
        return (
            refers
            and loop is not None
            and not any(
                other_name == name
                and self.loops.get(id(other)) is loop
                and not isinstance(other, ast.AugAssign)
                and name not in names_in(other_value)
                for other_name, other_value, other in self.bindings
            )
        )

    def stored_parts(self) -> Iterator[tuple[str, list[ast.AST]]]:
        """What is written into the value of a name: `out[i] = x`, `out += x`, `out.fill_(x)`, `rows.append(x)`."""
        for statement in self.statements:
            value: ast.AST | None = getattr(statement, "value", None)
            for part in (part for target in targets_of(statement) for part in ast.walk(target)):
                if value is None or not isinstance(part, ast.Subscript) or not isinstance(part.value, ast.Name):
                    continue
                if isinstance(part.ctx, ast.Store):
                    yield part.value.id, [part.slice, value]
        for node in self.nodes:
            if not isinstance(node, ast.Call):
                continue
            func = node.func
            if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
                in_place = func.attr.endswith("_") and not func.attr.endswith("__")
                if in_place or func.attr in ("append", "extend", "insert", "update"):
                    yield func.value.id, list(node.args)

    def settings_of_self(self) -> set[str]:
        """Attributes that are set in `__init__` only, to plain numbers: not modules, parameters or buffers."""
        settings: dict[str, bool] = {}
        owner = self.function.owner
        for function in owner.node.body if owner is not None else ():
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


def _scopes_of(module: Module) -> list[_Scope]:
    """The module and all its functions; none if it is not Python."""
    if module.tree.body == []:
        return []
    body, *functions = [_Scope(function) for function in module.functions]
    once = [name for name, _, node in body.bindings if id(node) not in body.loops]
    literal = {name for name, value, _ in body.bindings if once.count(name) == 1 and _is_literal(value)}
    rebound = {name for name, _, node in body.bindings if id(node) in body.loops} | body.unclear
    for scope in functions:
        scope.outer_constants = literal - rebound - scope.bound - set(scope.parameters)
    return [body, *functions]


class _Known:
    """Which names and functions of all scopes are constant."""

    def __init__(self, scopes: Sequence[_Scope]) -> None:
        self.scopes = scopes
        plain = [scope for scope in scopes if scope.is_plain_function]
        names = [scope.name for scope in plain]
        # Of several with one name it is not known which is called.
        self._functions = {scope.name: scope for scope in plain if names.count(scope.name) == 1}
        self._fixed_parameters: dict[int, set[str]] = {id(scope): set() for scope in scopes}
        self._names: dict[int, set[str]] = {}
        self._pure: dict[str, bool] = {}
        # By the class: its methods share them.
        self._settings: dict[int, set[str]] = {}
        for _ in range(_ROUNDS):
            self._names = {
                id(scope): self._constant_names(scope, self._fixed_parameters[id(scope)]) for scope in scopes
            }
            self._fix_parameters()

    def _fix_parameters(self) -> None:
        """A parameter is constant if every known call passes a constant or leaves it to its default."""
        passed: dict[str, list[set[str]]] = {}
        for scope in self.scopes:
            # `__init__` is called once: what it passes says nothing about the calls of a step.
            for node in scope.nodes if scope.name != "__init__" else ():
                if isinstance(node, ast.Call) and (function := self._functions.get(called_name(node))) is not None:
                    passed.setdefault(function.name, []).append(self._constant_arguments(node, function, scope))
        for name, fixed in passed.items():
            self._fixed_parameters[id(self._functions[name])] = set.intersection(*fixed)

    def _constant_arguments(self, call: ast.Call, scope: _Scope, caller: _Scope) -> set[str]:
        plain = scope.function.definition
        if has_star_arguments(call) or plain is None:
            return set()
        given = scope.function.arguments(call)
        env = self._names[id(caller)]
        left = {name for name, value in defaults(plain).items() if name not in given and _is_literal(value)}
        return left | {name for name, value in given.items() if self._is_constant(value, env, caller)}

    def _constant_names(self, scope: _Scope, parameters: set[str]) -> set[str]:
        """Names of a scope that are only bound to constants: starts with all and removes those that are not."""
        names = {name for name, _, _ in scope.bindings} - set(scope.parameters) | parameters | scope.outer_constants
        names -= (scope.unclear - _NEUTRAL) | _of_several(scope)
        while True:
            wrong = {
                name
                for name, value, node in scope.bindings
                if name in names and (not self._is_constant(value, names, scope) or scope.is_bound_again(name, node))
            }
            wrong |= {
                name
                for name, parts in scope.stored_parts()
                if name in names and not all(self._is_constant(part, names, scope) for part in parts)
            }
            if not wrong:
                return names
            names -= wrong

    def _is_constant(self, node: ast.AST, env: set[str], scope: _Scope) -> bool:
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Name):
            if node.id in env or node.id in _NEUTRAL:
                return True
            own = node.id in scope.bound or node.id in scope.parameters
            return not own and (node.id.isupper() or node.id in scope.from_libraries)
        if isinstance(node, ast.Attribute):
            return self._is_constant_attribute(node, env, scope)
        if isinstance(node, ast.Call):
            return self._is_constant_call(node, env, scope)
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
            inner = set(env)
            for part in node.generators:
                if not self._is_constant(part.iter, inner, scope):
                    return False
                inner |= names_in(part.target)
            tests = [test for part in node.generators for test in part.ifs]
            return all(self._is_constant(part, inner, scope) for part in (node.elt, *tests))
        if isinstance(node, _PLAIN):
            parts = (part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.expr_context))
            return all(self._is_constant(part, env, scope) for part in parts)
        return False

    def _is_constant_attribute(self, node: ast.Attribute, env: set[str], scope: _Scope) -> bool:
        if node.attr in _NEUTRAL or _is_of_settings(node):
            return True
        root = node.value
        if _is_self(root):
            key = id(scope.function.owner)
            if key not in self._settings:
                self._settings[key] = scope.settings_of_self()
            return node.attr in self._settings[key]
        if isinstance(root, ast.Name) and root.id in scope.imported:
            return root.id in _LIBRARIES or node.attr.isupper()
        return self._is_constant(root, env, scope)

    def _is_constant_call(self, call: ast.Call, env: set[str], scope: _Scope) -> bool:
        name, func = called_name(call), call.func
        if any(part in name for part in _BY_CHANCE):
            return False
        if any(given.arg == "requires_grad" or given.arg is None for given in call.keywords):
            return False
        if isinstance(func, ast.Attribute) and name in _MOVES:
            return self._is_constant(func.value, env, scope)
        values = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg not in _PLACES)]
        if not all(self._is_constant(value, env, scope) for value in values):
            return False
        if isinstance(func, ast.Name):
            is_builtin = name in _BUILTINS and name not in scope.bound
            return is_builtin or self._is_pure(name) or name in scope.from_libraries
        if not isinstance(func, ast.Attribute):
            return False
        if name in _OF_RECEIVER or _in_library(func, scope):
            return True
        if isinstance(func.value, ast.Name) and func.value.id in scope.imported:
            return self._is_pure(name)
        return self._is_constant(func.value, env, scope)

    def _is_pure(self, name: str) -> bool:
        """Is it a function of the user's that returns a constant for constants?"""
        function = self._functions.get(name)
        if function is None:
            return False
        if name not in self._pure:
            self._pure[name] = False  # while it is examined: recursion is not followed
            env = self._constant_names(function, set(function.parameters))
            self._pure[name] = bool(function.returned) and all(
                self._is_constant(value, env, function) for value in function.returned
            )
        return self._pure[name]

    def built(self, scope: _Scope) -> Iterator[ConstantStatement]:
        plain = scope.function.definition
        is_cached = plain is not None and any(name.endswith(_CACHES) for name in decorator_names(plain))
        if scope.name == "__init__" or is_cached:
            return
        env, once = self._names[id(scope)], scope.runs_once
        feeding: set[str] = set()
        # Backwards: the parts of a constant are bound before it.
        for statement in reversed(scope.statements):
            value = getattr(statement, "value", None)
            if value is None or (once and id(statement) not in scope.loops):
                continue
            whole = self._is_whole(statement, value, env, scope)
            if whole is None and _targets(statement) & feeding & env:
                whole = True
            if whole is not None:
                yield ConstantStatement(scope.file, statement.lineno, statement.end_lineno or statement.lineno, whole)
                feeding |= names_in(value) if whole else set()

    def _is_whole(self, statement: ast.stmt, value: ast.expr, env: set[str], scope: _Scope) -> bool | None:
        """Is it nothing but a constant, or are other things done beside its copy? None if it is no constant at all."""
        targets = _targets(statement)
        kept = isinstance(statement, ast.Return) or bool(targets and targets <= env)
        if kept and self._is_constant(value, env, scope) and self._makes_tensor(value, env, scope):
            return True
        # Or a part of it, or the first value of something that changes later: then at least its copy.
        moved = [call for call in ast.walk(value) if is_call(call, "to", "cuda")]
        if len(moved) == 1 and self._is_constant(moved[0], env, scope) and self._makes_tensor(moved[0], env, scope):
            return False
        return None

    def _makes_tensor(self, value: ast.AST, env: set[str], scope: _Scope, depth: int = 0) -> bool:
        if depth > _ROUNDS:
            return False
        for node in ast.walk(value):
            if isinstance(node, ast.Call):
                name = called_name(node)
                if name in _MAKERS and (
                    name in _OF_RECEIVER or _in_library(node.func, scope) or name in scope.from_libraries
                ):
                    return True
                function = self._functions.get(name)
                made = [*function.returned, *(bound for _, bound, _ in function.bindings)] if function else ()
                if function and any(self._makes_tensor(inner, set(), function, depth + 1) for inner in made):
                    return True
            elif isinstance(node, ast.Name) and node.id in env:
                given = [
                    bound for name, bound, _ in scope.bindings if name == node.id and node.id not in names_in(bound)
                ]
                if any(self._makes_tensor(bound, env - {node.id}, scope, depth + 1) for bound in given):
                    return True
        return False


def _of_several(scope: _Scope) -> set[str]:
    """Names that are bound to different literals: `ok = True`, and in some branch `ok = False`."""
    begun: dict[str, set[object]] = {}
    for name, value, _ in scope.bindings:
        if isinstance(value, ast.Constant) and value.value is not None:
            begun.setdefault(name, set()).add(value.value)
    return {name for name, values in begun.items() if len(values) > 1}


def _is_of_settings(node: ast.AST) -> bool:
    """`args.size`, `self.cfg.model.width`: set once by the command line or a config file."""
    while isinstance(node, ast.Attribute):
        node = node.value
        if own_name(node) in _SETTINGS:
            return True
    return False


def _targets(statement: ast.stmt) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else ()
    return {name for target in targets for name in names_in(target)}


def _in_library(func: ast.expr, scope: _Scope) -> bool:
    """`torch.arange`, `np.linalg.inv`, `torch.nn.functional.pad`."""
    root = dotted_name(func).split(".")[0]
    return root in _LIBRARIES and root in scope.imported


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_setting(statement: ast.stmt) -> bool:
    value = getattr(statement, "value", None)
    if value is None or isinstance(statement, ast.AugAssign):
        return False
    return all(called_name(call) in _PLAIN_CALLS for call in ast.walk(value) if isinstance(call, ast.Call))


def _is_literal(value: ast.AST) -> bool:
    allowed = (
        ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop,
        ast.expr_context,
    )  # fmt: skip
    return all(isinstance(node, allowed) for node in ast.walk(value))
