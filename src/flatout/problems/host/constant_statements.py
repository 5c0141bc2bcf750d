"""Statements in the user's source that build the same tensor at every call: from literals and settings alone.

A value that depends on a batch, a counter or chance is not constant, and neither is one that cannot be followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from flatout.problems.host.text_scopes import (
    NEUTRAL,
    Scope,
    in_training_function,
    is_bound_again,
    parse_scopes,
    settings_of_self,
    single_values,
    stored_parts,
)
from flatout.source.syntax.nodes import called_name, names_in

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
# Arguments that say where and how a tensor is stored, not what it holds.
_PLACES = {"device", "dtype", "layout", "pin_memory", "non_blocking", "copy", "memory_format"}
_MOVES = {"to", "cuda", "type_as", "type"}
_SETTINGS = {"args", "cfg", "conf", "config", "opt", "opts", "options", "hparams"}
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
    known = _Known([scope for file, text in files for scope in parse_scopes(file, text)])
    return tuple(built for scope in known.scopes for built in known.built(scope))


class _Known:
    """Which names and functions of all scopes are constant."""

    def __init__(self, scopes: Sequence[Scope]) -> None:
        self.scopes = scopes
        self._functions = {scope.name: scope for scope in scopes if scope.is_plain_function}
        several = [scope.name for scope in scopes if scope.is_plain_function]
        for name in {name for name in several if several.count(name) > 1}:
            del self._functions[name]  # it is not known which one is called
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
        passed: dict[str, list[tuple[ast.Call, Scope]]] = {}
        for scope in self.scopes:
            if scope.name == "__init__":
                continue  # called once: what it passes says nothing about the calls of a step
            for node in scope.nodes:
                if isinstance(node, ast.Call) and called_name(node) in self._functions:
                    passed.setdefault(called_name(node), []).append((node, scope))
        for name, calls in passed.items():
            function = self._functions[name]
            fixed = [self._constant_arguments(call, function, caller) for call, caller in calls]
            self._fixed_parameters[id(function)] = set.intersection(*fixed)

    def _constant_arguments(self, call: ast.Call, function: Scope, caller: Scope) -> set[str]:
        if any(isinstance(arg, ast.Starred) for arg in call.args) or any(
            keyword.arg is None for keyword in call.keywords
        ):
            return set()
        given = dict(zip(function.parameters, call.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
        env = self._names[id(caller)]
        left = {name for name in function.defaults if name not in given}
        return left | {name for name, value in given.items() if self._is_constant(value, env, caller)}

    def _constant_names(self, scope: Scope, parameters: set[str]) -> set[str]:
        """Names of a scope that are only bound to constants: starts with all and removes those that are not."""
        names = {name for name, _, _ in scope.bindings} - set(scope.parameters) | parameters | scope.outer_constants
        names -= {name for name in scope.unclear if name not in NEUTRAL}
        names -= _of_several(scope)
        while True:
            wrong = {
                name
                for name, value, node in scope.bindings
                if name in names and (not self._is_constant(value, names, scope) or is_bound_again(scope, name, node))
            }
            wrong |= {
                name
                for name, parts in stored_parts(scope)
                if name in names and not all(self._is_constant(part, names, scope) for part in parts)
            }
            if not wrong:
                return names
            names -= wrong

    def _is_constant(self, node: ast.AST, env: set[str], scope: Scope) -> bool:
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Name):
            own = node.id in scope.bound or node.id in scope.parameters
            return (
                node.id in env
                or node.id in NEUTRAL
                or (not own and (node.id.isupper() or node.id in scope.from_libraries))
            )
        if isinstance(node, ast.Attribute):
            return self._is_constant_attribute(node, env, scope)
        if isinstance(node, ast.Call):
            return self._is_constant_call(node, env, scope)
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
            inner = set(env)
            for part in node.generators:
                if not self._is_constant(part.iter, inner, scope):
                    return False
                inner |= {child.id for child in ast.walk(part.target) if isinstance(child, ast.Name)}
            tests = [test for part in node.generators for test in part.ifs]
            return all(self._is_constant(part, inner, scope) for part in (node.elt, *tests))
        if isinstance(node, _PLAIN):
            return all(self._is_constant(part, env, scope) for part in single_values(node))
        return False

    def _is_constant_attribute(self, node: ast.Attribute, env: set[str], scope: Scope) -> bool:
        if node.attr in NEUTRAL or _is_of_settings(node):
            return True
        root = node.value
        if isinstance(root, ast.Name) and root.id == "self":
            return node.attr in self._settings_of(scope)
        if isinstance(root, ast.Name) and root.id in scope.imported:
            return root.id in _LIBRARIES or node.attr.isupper()
        return self._is_constant(root, env, scope)

    def _settings_of(self, scope: Scope) -> set[str]:
        key = id(scope.class_body)
        if key not in self._settings:
            self._settings[key] = settings_of_self(scope)
        return self._settings[key]

    def _is_constant_call(self, call: ast.Call, env: set[str], scope: Scope) -> bool:
        name, func = called_name(call), call.func
        if any(part in name for part in _BY_CHANCE):
            return False
        if any(given.arg == "requires_grad" or given.arg is None for given in call.keywords):
            return False
        values = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg not in _PLACES)]
        if isinstance(func, ast.Attribute) and name in _MOVES:
            return self._is_constant(func.value, env, scope)
        if not all(self._is_constant(value, env, scope) for value in values):
            return False
        if isinstance(func, ast.Name):
            return (
                (name in _BUILTINS and name not in scope.bound) or self._is_pure(name) or _is_from_library(name, scope)
            )
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

    def built(self, scope: Scope) -> Iterator[ConstantStatement]:
        if scope.name == "__init__" or scope.is_cached:
            return
        env = self._names[id(scope)]
        once = in_training_function(scope)
        feeding: set[str] = set()
        # Backwards: the parts of a constant are bound before it.
        for statement, in_loop in reversed(scope.statements):
            value = getattr(statement, "value", None)
            if value is None or (once and not in_loop):
                continue
            found = self._in_statement(statement, value, env, scope)
            if found is None and _targets(statement) & feeding & env:
                found = _statement_of(scope, statement, whole=True)
            if found is not None:
                yield found
                feeding |= {node.id for node in ast.walk(value) if isinstance(node, ast.Name)} if found.whole else set()

    def _in_statement(
        self, statement: ast.stmt, value: ast.expr, env: set[str], scope: Scope
    ) -> ConstantStatement | None:
        targets = _targets(statement)
        kept = isinstance(statement, ast.Return) or bool(targets and targets <= env)
        if kept and self._is_constant(value, env, scope) and self._makes_tensor(value, env, scope):
            return _statement_of(scope, statement, whole=True)
        # Or a part of it, or the first value of something that changes later: then at least its copy.
        moved = [call for call in ast.walk(value) if isinstance(call, ast.Call) and called_name(call) in ("to", "cuda")]
        if len(moved) == 1 and self._is_constant(moved[0], env, scope) and self._makes_tensor(moved[0], env, scope):
            return _statement_of(scope, statement, whole=False)
        return None

    def _makes_tensor(self, value: ast.AST, env: set[str], scope: Scope, depth: int = 0) -> bool:
        if depth > _ROUNDS:
            return False
        for node in ast.walk(value):
            if isinstance(node, ast.Call):
                name = called_name(node)
                if name in _MAKERS and (
                    name in _OF_RECEIVER or _in_library(node.func, scope) or _is_from_library(name, scope)
                ):
                    return True
                function = self._functions.get(name)
                if function is not None and any(
                    self._makes_tensor(made, set(), function, depth + 1) for made in _values_of(function)
                ):
                    return True
            elif isinstance(node, ast.Name) and node.id in env:
                given = [
                    bound for name, bound, _ in scope.bindings if name == node.id and node.id not in names_in(bound)
                ]
                if any(self._makes_tensor(bound, env - {node.id}, scope, depth + 1) for bound in given):
                    return True
        return False


_PLAIN = (
    ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Subscript, ast.Slice,
    ast.IfExp, ast.Starred, ast.operator, ast.unaryop, ast.cmpop, ast.boolop,
)  # fmt: skip


def _of_several(scope: Scope) -> set[str]:
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
        if (node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")) in _SETTINGS:
            return True
    return False


def _statement_of(scope: Scope, statement: ast.stmt, whole: bool) -> ConstantStatement:
    return ConstantStatement(scope.file, statement.lineno, statement.end_lineno or statement.lineno, whole)


def _targets(statement: ast.stmt) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else ()
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _values_of(function: Scope) -> list[ast.AST]:
    return [*function.returned, *(value for _, value, _ in function.bindings)]


def _in_library(func: ast.AST, scope: Scope) -> bool:
    """`torch.arange`, `np.linalg.inv`, `torch.nn.functional.pad`."""
    while isinstance(func, ast.Attribute):
        func = func.value
    return isinstance(func, ast.Name) and func.id in _LIBRARIES and func.id in scope.imported


def _is_from_library(name: str, scope: Scope) -> bool:
    """`from torch import arange`."""
    return name in scope.from_libraries
