"""Is a setting used? It may be read and only be stored, checked or printed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from flatout.source.project.project import Project
from flatout.source.project.settings import is_settings_name
from flatout.source.syntax.module import Class, Function, Module
from flatout.source.syntax.nodes import (
    FEW_HOPS,
    all_arguments,
    called_name,
    children,
    dotted_name,
    has_star_arguments,
    is_call,
    own_name,
    targets_of,
)

# Functions that show a value to people.
_SHOWING = re.compile(
    r"^(print|pprint|info|debug|warn|warning|error|log|logger|critical|exception|echo|format|write|dump|dumps|init"
    r"|save|save_hyperparameters|log_hyperparams|log_params?|log_dict|add_text|add_hparams|add_argument|set_defaults"
    r"|set_description|set_postfix|str|repr|isinstance|hasattr|type|len|rprint|getLogger|log_config|save_config)$"
)
_RAISING = {"warn", "warning", "error", "exit"}
# Functions that return their argument, more or less.
_SAME = {"int", "bool", "float", "str", "max", "min", "lower", "upper", "strip", "abs"}
# Functions that keep a value under the keyword it is given as.
_KEEPING = {
    "replace",
    "dict",
    "SimpleNamespace",
    "Namespace",
    "update",
    "evolve",
    "EasyDict",
    "AttrDict",
    "OrderedDict",
}
# Functions that take all settings at once and read none of them by name.
_COPYING = {
    "vars", "asdict", "deepcopy", "copy", "setattr", "Namespace", "SimpleNamespace", "dict", "EasyDict", "create",
    "replace", "evolve", "is_dataclass", "fields", "id", "append", "list", "tuple", "set", "sorted", "bool",
}  # fmt: skip


_READING = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant)


@dataclass(frozen=True, slots=True)
class _Read:
    """An expression that reads a value under a name, so many hops from the setting itself."""

    node: ast.expr
    function: Function
    name: str
    hops: int


class SettingUses:
    """Uses of settings in the files of one training."""

    def __init__(
        self, project: Project, modules: Sequence[Module], ignored: Iterable[ast.Call] = (), as_whole: bool = False
    ) -> None:
        """Arguments of the calls in `ignored` are no use; with `as_whole` only the use of a whole section counts."""
        self.project = project
        self.modules = modules
        self._as_whole = as_whole
        self._ignored = {id(call) for call in ignored}
        self._inside: dict[int, list[tuple[ast.expr, Function]]] = {}
        self._known: dict[str, bool] = {}

    def is_used(self, name: str, hops: int = 0) -> bool:
        """Does anything depend on an attribute, key or name of this name?"""
        if name not in self._known:
            self._known[name] = False  # while it is being looked at
            self._known[name] = any(self._is_used_at(read) for read in self._reads(name, hops))
        return self._known[name]

    def _reads(self, name: str, hops: int) -> Iterator[_Read]:
        for module in self.modules:
            for node, function in self._nodes(module) if name in module.text else ():
                if _is_read(node, name) and (not self._as_whole or _is_of_settings(node)):
                    yield _Read(node, function, name, hops)

    def takes_whole(self) -> bool:
        """Are all settings handed to code outside of these files, which may read any of them?"""
        return any(
            self._is_handed(call, function)
            for module in self.modules
            for function in module.functions
            for call in function.calls
        )

    def _is_handed(self, call: ast.Call, function: Function) -> bool:
        name = called_name(call)
        if name == "getattr":
            return len(call.args) > 1 and not isinstance(call.args[1], ast.Constant) and _is_whole(call.args[0])
        given = all_arguments(call)
        # `tyro.cli(Args)`: the class is filled in, and its fields are read by name.
        whole = [
            value
            for value in given
            if _is_whole(value)
            and not (isinstance(value, ast.Name) and isinstance(self.project.lookup(value.id, function), Class))
        ]
        if not whole or _SHOWING.match(name) or name in _COPYING or self.project.resolve(call, function):
            return False
        meant = self.project.lookup(name, function) if isinstance(call.func, ast.Name) else None
        return not isinstance(meant, Class)

    # What a value is used for.

    def _is_used_at(self, read: _Read) -> bool:
        """Goes up from where a value is read to what it is used for."""
        parents = read.function.module.parents
        node: ast.AST = read.node
        while (parent := parents.get(id(node))) is not None:
            if self._as_whole and _is_of_part(node, parent):
                return False
            if isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                return any(self._is_target_used(target, parent.value, read) for target in targets_of(parent))
            if isinstance(parent, ast.keyword):
                call = parents.get(id(parent))
                return isinstance(call, ast.Call) and self._is_used_by_call(call, parent, read)
            if isinstance(parent, ast.Call) and node is not parent.func:
                if isinstance(parents.get(id(parent)), ast.Raise):
                    return False
                if called_name(parent) not in _SAME or not isinstance(parent.func, ast.Name):
                    return self._is_used_by_call(parent, node, read)
            elif (known := _is_use(node, parent, read.name)) is not None:
                return known
            node = parent
        return False

    def _is_target_used(self, target: ast.expr, value: ast.AST | None, read: _Read) -> bool:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs = zip(target.elts, value.elts, strict=True)
            return any(
                self._is_target_used(to, None, read)
                for to, part in pairs
                if any(inner is read.node for inner in ast.walk(part))
            )
        if isinstance(target, ast.Name):
            return self._is_local_used(target.id, read.function, read)
        if isinstance(target, ast.Attribute):
            return self._is_renamed_used(target.attr, read)
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            return target.slice.value != read.name
        return True

    def _is_renamed_used(self, name: str, read: _Read) -> bool:
        """Is the attribute or key used that the value is kept under? Reads under its own name are checked anyway."""
        return name != read.name and (read.hops >= FEW_HOPS or self.is_used(name, read.hops + 1))

    def _is_local_used(self, local: str, function: Function, read: _Read) -> bool:
        """Is a local name used within its function, or a name of a module within all files?"""
        if local == read.name:
            return False  # reads under its own name are checked anyway
        if read.hops >= FEW_HOPS:
            return True
        if function.definition is None:
            return self.is_used(local, read.hops + 1)
        return any(
            self._is_used_at(_Read(node, inside, local, read.hops + 1))
            for node, inside in self._nodes(function.module)
            if isinstance(node, ast.Name)
            and node.id == local
            and isinstance(node.ctx, ast.Load)
            and any(scope is function for scope in inside.scopes())
        )

    def _is_used_by_call(self, call: ast.Call, given: ast.AST, read: _Read) -> bool:
        called = called_name(call)
        if id(call) in self._ignored or _SHOWING.match(called):
            return False
        keyword = given.arg if isinstance(given, ast.keyword) else None
        if called in _KEEPING and keyword is not None:
            return self._is_renamed_used(keyword, read)
        if isinstance(given, ast.keyword) and keyword is None:
            return True
        meant = self.project.lookup(called, read.function) if isinstance(call.func, ast.Name) else None
        if isinstance(meant, Class) and self._is_here(meant.module) and not self.project.methods(meant, "__init__"):
            # A record: reads of its fields are checked by themselves.
            return keyword is None or (keyword != read.name and self.is_used(keyword, read.hops + 1))
        callees = self.project.resolve(call, read.function)
        return not callees or any(self._is_parameter_used(callee, call, given, read) for callee in callees)

    def _is_parameter_used(self, callee: Function, call: ast.Call, given: ast.AST, read: _Read) -> bool:
        if callee.definition is None or not self._is_here(callee.module):
            return True  # code outside of these files may use it
        if isinstance(given, ast.keyword):
            to = given.arg if given.arg in callee.parameters else None
        elif has_star_arguments(call):
            return True
        else:
            to = next((name for name, value in callee.arguments(call).items() if value is given), None)
        return to is None or self._is_local_used(to, callee, read)

    def _is_here(self, module: Module) -> bool:
        return any(other is module for other in self.modules)

    # Syntax trees.

    def _nodes(self, module: Module) -> list[tuple[ast.expr, Function]]:
        """Expressions that may read a setting, each with its function."""
        if id(module) not in self._inside:
            functions = {id(function.node): function for function in module.functions}
            found: list[tuple[ast.expr, Function]] = []
            stack: list[tuple[ast.AST, Function]] = [(module.tree, module.body)]
            while stack:
                node, function = stack.pop()
                for child in children(node):
                    if isinstance(child, _READING) and not _is_part_of_read(child, node):
                        found.append((child, function))
                    stack.append((child, functions.get(id(child), function)))
            self._inside[id(module)] = found
        return self._inside[id(module)]


def _is_use(node: ast.AST, parent: ast.AST, name: str) -> bool | None:
    """Is a value used by being part of `parent`? None if that depends on what is around it."""
    if isinstance(parent, ast.JoinedStr | ast.FormattedValue | ast.Assert | ast.Raise | ast.Expr):
        return False
    if isinstance(parent, ast.Dict):
        keys = [key for key, item in zip(parent.keys, parent.values, strict=True) if item is node]
        # Kept under its own name, which is checked by itself.
        return False if keys and isinstance(keys[0], ast.Constant) and keys[0].value == name else None
    if isinstance(parent, ast.Compare):
        # One of several values that something is compared with.
        return False if node is not parent.left and isinstance(parent.ops[0], ast.In | ast.NotIn) else None
    if isinstance(parent, ast.If | ast.While):
        return not _only_raises(parent.body)
    if isinstance(parent, ast.IfExp):
        # `workers if workers is not None else 4`
        return False if node is parent.test and name in ast.dump(parent.body) else None
    return True if isinstance(parent, ast.stmt | ast.comprehension | ast.Starred | ast.Lambda) else None


def _is_read(node: ast.expr, name: str) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == name and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Name):
        return node.id == name and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == name and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Call):
        at = 1 if called_name(node) == "getattr" else 0
        key = node.args[at] if called_name(node) in ("get", "getattr", "pop") and len(node.args) > at else None
        return isinstance(key, ast.Constant) and key.value == name
    # The name as a string, in a list or as an argument: it may be used to read the setting.
    return isinstance(node, ast.Constant) and node.value == name


def _is_part_of_read(node: ast.expr, parent: ast.AST | None) -> bool:
    """The string in `cfg["workers"]` or `cfg.get("workers")` is part of that read; a dict's key is a write."""
    if not isinstance(node, ast.Constant):
        return False
    if not isinstance(node.value, str) or isinstance(parent, ast.Subscript | ast.Compare | ast.Expr):
        return True
    if isinstance(parent, ast.Dict):
        return any(node is key for key in parent.keys)
    return isinstance(parent, ast.Call) and (
        called_name(parent) in ("get", "getattr", "pop", "add_argument", "option", "hasattr", "setattr")
        or called_name(parent).startswith("DEFINE_")
    )


def _is_whole(node: ast.expr) -> bool:
    """`args`, `self.cfg`, `vars(args)`, `*opts`: all settings, not one of them."""
    if isinstance(node, ast.Starred):
        node = node.value
    if is_call(node, "vars", "asdict", "to_container") and node.args:
        node = node.args[0]
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        node = node.value
    name = dotted_name(node)
    return bool(name) and is_settings_name(name.split(".")[-1]) and name.split(".")[-1] not in ("params", "c")


def _is_of_settings(node: ast.expr) -> bool:
    """`cfg.loader` and `cfg["loader"]`, not another object with this name."""
    if isinstance(node, ast.Name):
        return is_settings_name(node.id)
    base = node.func if isinstance(node, ast.Call) else node
    while isinstance(base, ast.Attribute | ast.Subscript):
        base = base.value
        if is_settings_name(own_name(base)):
            return True
    return False


def _is_of_part(node: ast.AST, parent: ast.AST) -> bool:
    """`loader.workers`, `loader["workers"]`: one entry of a section, not all of it."""
    if isinstance(parent, ast.Attribute):
        return parent.attr not in ("items", "values", "copy", "__dict__")
    return isinstance(parent, ast.Subscript) and node is parent.value and isinstance(parent.slice, ast.Constant)


def _only_raises(body: Sequence[ast.stmt]) -> bool:
    """`if workers < 0: raise`: a check, not a use."""
    return all(
        isinstance(node, ast.Raise | ast.Pass)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called_name(node.value) in _RAISING)
        for node in body
    )
