"""Constant values that reach a call: from literals, defaults, argparse, dataclasses, dicts and config files.

A value is only known if there is no doubt about it: one that two callers or two config files disagree on is not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flatout.records.source import Place
from flatout.source.leaves import Leaf, Uncertain, leaves_of
from flatout.source.module import Class, Function, Module
from flatout.source.nodes import argument, called_name, defaults, dotted, is_open, parameters, passed
from flatout.source.project import Project

_DEEPEST = 8
_SETTINGS = re.compile(
    r"^(args?|opts?|options|cfg|conf|config|configs|hparams|hp|params|settings|flags|FLAGS|c)$|(cfg|config|args|opt|hparams|params)$"
)


@dataclass(frozen=True, slots=True)
class Value:
    """`place` is where it is written; `how` says what it is there: a default of `--workers`, a field, a key."""

    value: Any
    place: Place
    how: str = ""
    # It stands in the call itself.
    is_direct: bool = False


class Values:
    """Follows values through one project."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def of(self, node: ast.expr, function: Function, depth: int = 0) -> Value | None:
        """The value of an expression; None where it cannot be told."""
        return self._of(node, function, depth) if depth <= _DEEPEST else None

    def _of(self, node: ast.expr, function: Function, depth: int) -> Value | None:
        if isinstance(node, ast.Constant):
            return Value(node.value, function.module.place(node), is_direct=depth == 0)
        if isinstance(node, ast.UnaryOp | ast.List | ast.Tuple | ast.Dict):
            return _literal(node, function)
        if isinstance(node, ast.IfExp):
            return self._either(node, function, depth)
        if isinstance(node, ast.Name):
            return self._name(node.id, function, depth)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, function, depth)
        if isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            return self._key(node.value, key, function, depth) if isinstance(key, str) else None
        if isinstance(node, ast.Call):
            return self._call(node, function, depth)
        return None

    def _either(self, node: ast.IfExp, function: Function, depth: int) -> Value | None:
        """The branch that a known test leads to; else what both have in common."""
        test = node.test
        negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        known = self.of(test.operand if isinstance(test, ast.UnaryOp) else test, function, depth + 1)
        if known is not None and isinstance(known.value, bool | int | None):
            return self.of(node.body if bool(known.value) != negated else node.orelse, function, depth + 1)
        return _agreed([self.of(node.body, function, depth + 1), self.of(node.orelse, function, depth + 1)])

    def _name(self, name: str, function: Function, depth: int) -> Value | None:
        if name in function.bindings:
            return self._single(function.bindings[name], function, depth)
        plain = function.definition
        if plain is not None and name in parameters(plain):
            return self._parameter(name, function, depth)
        if function.parent is not None:
            return self._name(name, function.parent, depth + 1)
        body = function.module.body
        if body is not function and name in body.bindings:
            return self._single(body.bindings[name], body, depth)
        return self._imported(name, function.module, depth)

    def _single(self, values: list[ast.expr], function: Function, depth: int) -> Value | None:
        return self.of(values[0], function, depth + 1) if len(values) == 1 else None

    def _imported(self, name: str, module: Module, depth: int) -> Value | None:
        brought = module.imports.get(name)
        if brought is None or brought.attribute is None:
            return None
        source = self.project.module_named(brought.module)
        if source is None or source is module:
            return None
        return self._name(brought.attribute, source.body, depth + 1)

    def _parameter(self, name: str, function: Function, depth: int) -> Value | None:
        """What all callers pass, or leave to the default."""
        plain = function.definition
        assert plain is not None
        default = defaults(plain).get(name)
        found: list[Value | None] = []
        for call, caller in self.project.callers(function)[:20]:
            given = passed(call, plain, function.is_method or function.name == "__init__").get(name)
            if given is not None:
                found.append(self.of(given, caller, depth + 1))
            elif is_open(call) or default is None:
                found.append(None)
            else:
                found.append(self._default(default, name, function))
        if not found:
            return None if default is None else self._default(default, name, function)
        return _agreed(found)

    def _default(self, default: ast.expr, name: str, function: Function) -> Value | None:
        known = _literal(default, function)
        return None if known is None else Value(known.value, known.place, f"the default of {name} in {function.name}()")

    def _attribute(self, node: ast.Attribute, function: Function, depth: int) -> Value | None:
        base = node.value
        if isinstance(base, ast.Name) and base.id == "self" and function.owner is not None:
            return self._of_self(node.attr, function.owner, depth)
        cls = self.project.class_of(base, function)
        if cls is not None:
            return self._field(cls, node.attr) or self._of_self(node.attr, cls, depth)
        name = dotted(base).split(".")
        if not name[0]:
            return None
        # A module of constants: `config.NUM_WORKERS`.
        meant = self.project.lookup(name[0], function)
        if isinstance(meant, Module) and len(name) == 1:
            return self._name(node.attr, meant.body, depth + 1)
        if isinstance(meant, Class) and len(name) == 1:
            return self._field(meant, node.attr)
        return self._setting((*name[1:], node.attr), name, function)

    def _of_self(self, attr: str, owner: Class, depth: int) -> Value | None:
        values = [(v, m) for m in owner.methods.values() for v in m.bindings.get(f"self.{attr}", ())]
        if len(values) == 1:
            return self.of(values[0][0], values[0][1], depth + 1)
        return self._field(owner, attr) if not values else None

    def _field(self, cls: Class, attr: str) -> Value | None:
        """A field of a dataclass, or an attribute of a class of settings."""
        for node in cls.node.body:
            target = (
                node.target
                if isinstance(node, ast.AnnAssign)
                else node.targets[0]
                if isinstance(node, ast.Assign)
                else None
            )
            if isinstance(target, ast.Name) and target.id == attr:
                value: ast.expr | None = node.value  # type: ignore[attr-defined]
                if isinstance(value, ast.Call) and called_name(value) in ("field", "Field"):
                    value = argument(value, "default", 0)
                known = _literal(value, cls.module.body) if value is not None else None
                return None if known is None else Value(known.value, known.place, f"{cls.name}.{attr}")
        return None

    def _call(self, call: ast.Call, function: Function, depth: int) -> Value | None:
        name = called_name(call)
        if name == "get" and isinstance(call.func, ast.Attribute) and call.args:
            key = call.args[0].value if isinstance(call.args[0], ast.Constant) else None
            if isinstance(key, str):
                found = self._key(call.func.value, key, function, depth)
                return found or (self.of(call.args[1], function, depth + 1) if len(call.args) > 1 else None)
        if name == "getattr" and len(call.args) >= 2 and isinstance(call.args[1], ast.Constant):
            made = ast.Attribute(call.args[0], str(call.args[1].value), ast.Load())
            found = self._attribute(ast.copy_location(made, call), function, depth)
            return found or (self.of(call.args[2], function, depth + 1) if len(call.args) > 2 else None)
        if name in ("int", "bool") and len(call.args) == 1 and isinstance(call.func, ast.Name):
            return self.of(call.args[0], function, depth + 1)
        if name == "dict" and isinstance(call.func, ast.Name) and not is_open(call):
            known = {key: _constant(item) for key, item in _items(call)}
            return Value({k: v for k, v in known.items() if v is not None}, function.module.place(call))
        return None

    def _key(self, base: ast.expr, key: str, function: Function, depth: int) -> Value | None:
        """`cfg["data"]["num_workers"]`: of a dict in the code, else of the project's config files."""
        known = self.of(base, function, depth + 1) if not isinstance(base, ast.Attribute) else None
        if known is not None and isinstance(known.value, dict):
            return self._of_dict(base, key, function, known)
        path, names = [key], base
        while isinstance(names, ast.Subscript) and isinstance(names.slice, ast.Constant):
            path.insert(0, str(names.slice.value))
            names = names.value
        chain = dotted(names).split(".")
        if not chain[0]:
            return None
        return self._setting((*chain[1:], *path), chain, function)

    def _of_dict(self, base: ast.expr, key: str, function: Function, known: Value) -> Value | None:
        if key not in known.value:
            return None
        # The line of the key itself, where the dict stands in this function or module.
        for inside in (function, function.module.body):
            for value in inside.bindings.get(dotted(base), ()):
                for name, item in _items(value):
                    if name == key:
                        return Value(known.value[key], inside.module.place(item), f"{dotted(base)}[{key!r}]")
        return Value(known.value[key], known.place, f"[{key!r}]")

    # Settings that are written elsewhere.

    def _setting(self, path: tuple[str, ...], chain: list[str], function: Function) -> Value | None:
        if not any(_SETTINGS.search(part) for part in chain):
            return None
        attr = path[-1]
        option = self._option(attr, function.module) if len(path) == 1 else None
        return option or self._in_files(path)

    def _option(self, attr: str, module: Module) -> Value | None:
        """The default of a command line option: of this file, else of the one all files agree on."""
        found = self._options.get(attr, [])
        here = [value for value, of in found if of is module]
        return _agreed(here) if here else _agreed([value for value, _ in found])

    @cached_property
    def _options(self) -> dict[str, list[tuple[Value | None, Module]]]:
        found: dict[str, list[tuple[Value | None, Module]]] = {}
        for module in self.project.mentioning("add_argument"):
            for call, function in module.calls.get("add_argument", ()):
                flags = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
                if not flags:
                    continue
                for name in _destinations(call, flags):
                    found.setdefault(name, []).append((self._default_of(call, flags, function), module))
        return found

    def _default_of(self, call: ast.Call, flags: list[str], function: Function) -> Value | None:
        default, action = argument(call, "default"), argument(call, "action")
        word = f"the default of {max(flags, key=len)}"
        if default is not None:
            known = _literal(default, function)
            return None if known is None else Value(known.value, known.place, word)
        if isinstance(action, ast.Constant) and action.value in ("store_true", "store_false"):
            return Value(action.value == "store_false", function.module.place(call), word)
        return None

    def _in_files(self, path: tuple[str, ...]) -> Value | None:
        """A key of the config files: all that have it must agree."""
        found = [
            leaf
            for leaves in self._leaves
            for key, leaf in leaves.items()
            if key[-len(path) :] == path and leaf.value is not None
        ]
        if not found or any(leaf.value != found[0].value for leaf in found):
            return None
        first = found[0]
        return Value(first.value, Place(first.file, first.line or 1), ".".join(path))

    @cached_property
    def _leaves(self) -> list[dict[tuple[str, ...], Leaf]]:
        return [leaves for file in self.project.configs if (leaves := self._leaves_of(file))]

    def _leaves_of(self, file: str) -> dict[tuple[str, ...], Leaf]:
        try:
            return leaves_of(file, self.project.read)
        except Uncertain:
            return {}


def _destinations(call: ast.Call, flags: Iterable[str]) -> list[str]:
    given = argument(call, "dest")
    if isinstance(given, ast.Constant):
        return [str(given.value)]
    long = next((one for one in flags if one.startswith("--")), next(iter(flags)))
    return [long.lstrip("-").replace("-", "_")]


def _literal(node: ast.expr, function: Function) -> Value | None:
    try:
        return Value(ast.literal_eval(node), function.module.place(node))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        if isinstance(node, ast.Dict):
            known = {name: _constant(item) for name, item in _items(node)}
            return Value({k: v for k, v in known.items() if v is not None}, function.module.place(node))
        return None


def _constant(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _items(node: ast.expr) -> list[tuple[str, ast.expr]]:
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return [(str(key.value), item) for key, item in pairs if isinstance(key, ast.Constant)]
    if isinstance(node, ast.Call) and called_name(node) == "dict":
        return [(one.arg, one.value) for one in node.keywords if one.arg is not None]
    return []


def _agreed(values: list[Value | None]) -> Value | None:
    """The one value of all; None if one is not known or two differ."""
    first = values[0] if values else None
    if first is None or any(one is None or one.value != first.value for one in values):
        return None
    return first
