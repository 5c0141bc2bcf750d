"""Constant propagation: values that reach an expression from literals, defaults, options, classes and config files.

A value is known only if it is certain: not where two callers or two config files disagree.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from flatout.records.message import Message, message
from flatout.records.source import Edit, Place
from flatout.source.flow.definitions import MOST_CALLERS, Definitions
from flatout.source.flow.guards import is_evaluation
from flatout.source.project.project import Project
from flatout.source.project.settings import (
    ConfigFiles,
    Option,
    annotation_of,
    declared_default,
    declares_options,
    field_of,
    find_click_options,
    find_options,
    find_set_defaults,
    find_settings_classes,
    find_stores,
    is_config_load,
    is_settings_name,
)
from flatout.source.syntax.module import Class, Function, Module
from flatout.source.syntax.nodes import (
    MAX_HOPS,
    argument,
    called_name,
    defaults,
    dotted_name,
    has_decorator,
    has_star_arguments,
    is_call,
    literal,
)


@dataclass(frozen=True, slots=True)
class Value:
    """`place` is where it is written; `how` is what it is called there: a field, a key, the default of `--workers`."""

    value: Any
    place: Place
    how: Message | str = ""
    # It is a literal in the call itself.
    is_direct: bool = False
    # The user can set it: an option, a field, a key; not just a number in the code.
    is_set: bool = False

    @property
    def option(self) -> str | None:
        """The option of a command line whose default it is: `--workers`."""
        is_default = isinstance(self.how, Message) and self.how.id == "source.default"
        name = str(self.how.args["name"]) if is_default and isinstance(self.how, Message) else ""
        return name if name.startswith("-") else None

    @property
    def names(self) -> str:
        """All names it has where it is written."""
        return " ".join(map(str, self.how.args.values())) if isinstance(self.how, Message) else self.how


class Values:
    """Values of the expressions of a project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.origins = Definitions(project)
        self.configs = ConfigFiles(project)
        self._stored: dict[str, list[tuple[tuple[str, ...], Value | None]]] = {}
        self._held: dict[str, list[Class]] = {}

    def of(self, node: ast.expr, function: Function, depth: int = 0) -> Value | None:
        """The value of an expression; None if it is not certain."""
        return self._of(node, function, depth) if depth <= MAX_HOPS else None

    def _of(self, node: ast.expr, function: Function, depth: int) -> Value | None:
        if isinstance(node, ast.Constant):
            return Value(node.value, function.module.place(node), is_direct=depth == 0)
        if isinstance(node, ast.UnaryOp | ast.List | ast.Tuple):
            value = literal(node, unknown=self)
            return None if value is self else Value(value, function.module.place(node))
        if isinstance(node, ast.Dict):
            return self._dict_value(node, function, depth)
        if isinstance(node, ast.IfExp):
            return self._conditional(node, function, depth)
        if isinstance(node, ast.BoolOp):
            return self._or(node, function, depth)
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

    def _dict_value(self, node: ast.expr, function: Function, depth: int) -> Value | None:
        """A dict with all its keys; values that are not known are None."""
        inside = self.origins.entries(node, function, depth)
        if inside is None:
            return None
        known = {key: self.of(item, of, depth + 1) for key, (item, of) in inside.items()}
        return Value({key: value and value.value for key, value in known.items()}, function.module.place(node))

    def _conditional(self, node: ast.IfExp, function: Function, depth: int) -> Value | None:
        """The branch that a known test selects; else the value that both branches have."""
        test = node.test
        negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        known = self.of(test.operand if isinstance(test, ast.UnaryOp) else test, function, depth + 1)
        if known is not None and isinstance(known.value, bool | int | None):
            return self.of(node.body if bool(known.value) != negated else node.orelse, function, depth + 1)
        return _common_value([self.of(node.body, function, depth + 1), self.of(node.orelse, function, depth + 1)])

    def _or(self, node: ast.BoolOp, function: Function, depth: int) -> Value | None:
        """`workers or 0`: the first that is true, if all before it are known."""
        first = None
        for operand in node.values:
            first = self.of(operand, function, depth + 1)
            if first is None or bool(first.value) == isinstance(node.op, ast.Or):
                return first
        return first

    def _name(self, name: str, function: Function, depth: int) -> Value | None:
        found = self.project.binding(name, function)
        if found is None or (found.is_parameter and found.values):
            return None  # either what a caller passes, or what is assigned here
        if found.is_parameter:
            return self._parameter(name, found.function, depth)
        return self.of(found.values[0], found.function, depth + 1) if len(found.values) == 1 else None

    def _parameter(self, name: str, function: Function, depth: int) -> Value | None:
        """The value that all callers pass or leave to the default; the default of an option of click."""
        plain = function.definition
        assert plain is not None
        for option in find_click_options(function):
            if option.name == name:
                return self.default_of(option)
        default = defaults(plain).get(name)
        found: list[Value | None] = []
        # Where several agree, the place to report is that of the training.
        callers = sorted(
            self.project.callers(function), key=lambda caller: is_evaluation(caller[1].module.name.split(".")[-1])
        )
        for call, caller in callers[:MOST_CALLERS]:
            given = function.arguments(call).get(name)
            if given is not None:
                found.append(self.of(given, caller, depth + 1))
            elif has_star_arguments(call) or default is None:
                found.append(None)
            else:
                found.append(self._default(default, name, function, depth))
        if not found:
            return None if default is None else self._default(default, name, function, depth)
        return _common_value(found)

    def _default(self, default: ast.expr, name: str, function: Function, depth: int) -> Value | None:
        plainly = declared_default(default)
        # Names in a default are those of the module, not of the function.
        known = None if plainly is None else self.of(plainly, function.module.body, depth + 1)
        how = message("source.default_in", name=name, function=function.name)
        return None if known is None else replace(known, how=known.how or how, is_set=plainly is not default)

    def _attribute(self, node: ast.Attribute, function: Function, depth: int) -> Value | None:
        base = node.value
        if isinstance(base, ast.Name) and base.id == "self" and function.owner is not None:
            return self._of_self(node.attr, function.owner, depth)
        cls = self._class_of(base, function)
        if cls is not None:
            known = self.field(cls, node.attr, depth) or self._of_self(node.attr, cls, depth)
            known = known or self._of_property(node.attr, cls, depth)
            return _common_value([known, *(value for _, value in self._stores(node.attr))])
        inside = self.origins.entries(base, function, depth + 1)
        if inside is not None:
            return self._entry(inside.get(node.attr), node.attr, depth)
        name = dotted_name(base).split(".")
        if not name[0]:
            return None
        # A module of constants: `config.NUM_WORKERS`.
        meant = self.project.lookup(name[0], function)
        if isinstance(meant, Module) and len(name) == 1:
            return self._name(node.attr, meant.body, depth + 1)
        if isinstance(meant, Class):
            inner = meant.module.classes.get(name[-1])
            return None if inner is None else self.field(inner, node.attr, depth)
        if node.attr == "value" and (flag := self._flag(base, function)) is not None:
            return self.default_of(flag)
        return self._setting(node.attr, name, [], function, depth)

    def _class_of(self, node: ast.expr, function: Function) -> Class | None:
        """The class of an object; also of `cfg.data`, if the class of cfg annotates that field with a class."""
        found = self.project.class_of(node, function)
        if found is not None or not isinstance(node, ast.Attribute):
            return found or self._parsed_class(node, function)
        owner = self._class_of(node.value, function)
        note = "" if owner is None else annotation_of(owner, node.attr)
        meant = None if owner is None or not note else self.project.lookup(note, owner.module.body)
        return meant if isinstance(meant, Class) else None

    def _parsed_class(self, node: ast.expr, function: Function) -> Class | None:
        """`args = tyro.cli(Args)`: the class that a parser fills in."""
        origin = self.origins.of(node, function)
        made = None if origin is None else origin[0]
        if not isinstance(made, ast.Call) or called_name(made) not in ("cli", "parse", "structured", "wrap"):
            return None
        assert origin is not None
        for given in made.args:
            meant = self.project.lookup(given.id, origin[1]) if isinstance(given, ast.Name) else None
            if isinstance(meant, Class):
                return meant
        return None

    def _of_self(self, attr: str, owner: Class, depth: int) -> Value | None:
        values = owner.assigned(attr)
        if len(values) == 1:
            return self.of(*values[0], depth + 1)
        return self.field(owner, attr, depth) if not values else None

    def _of_property(self, attr: str, cls: Class, depth: int) -> Value | None:
        """`return self._entries.get("workers", 0)` in a property of that name."""
        for made in self.project.methods(cls, attr):
            plain = made.definition
            if plain is None or not has_decorator(plain, ("property",)):
                continue
            returned = [node.value for node in plain.body if isinstance(node, ast.Return)]
            if len(returned) == 1 and returned[0] is not None:
                known, how = self.of(returned[0], made, depth + 1), message("source.default", name=attr)
                return None if known is None else replace(known, how=known.how or how, is_set=True)
        return None

    def field(self, cls: Class, attr: str, depth: int = 0) -> Value | None:
        """A field of a dataclass, or an attribute of a class of settings, its own or a base class's."""
        if depth > MAX_HOPS:
            return None
        found = field_of(cls, attr)
        if found is not None:
            value = None if found.value is None else declared_default(found.value)
            known = None if value is None else self.of(value, cls.module.body, depth + 1)
            return None if known is None else replace(known, how=f"{cls.name}.{attr}", is_direct=False, is_set=True)
        for base in cls.bases:
            meant = self.project.lookup(base.split(".")[-1], cls.module.body)
            if isinstance(meant, Class) and meant is not cls and (got := self.field(meant, attr, depth + 1)):
                return got
        return None

    def _call(self, call: ast.Call, function: Function, depth: int) -> Value | None:
        name = called_name(call)
        if name == "get" and isinstance(call.func, ast.Attribute) and call.args:
            key = call.args[0].value if isinstance(call.args[0], ast.Constant) else None
            if isinstance(key, str):
                found = self._key(call.func.value, key, function, depth)
                return found or (self.of(call.args[1], function, depth + 1) if len(call.args) > 1 else None)
        if name == "getenv" and len(call.args) == 2:
            return self.of(call.args[1], function, depth + 1)
        if name == "getattr" and len(call.args) >= 2 and isinstance(call.args[1], ast.Constant):
            made = ast.Attribute(call.args[0], str(call.args[1].value), ast.Load())
            found = self._attribute(ast.copy_location(made, call), function, depth)
            return found or (self.of(call.args[2], function, depth + 1) if len(call.args) > 2 else None)
        if name in ("int", "bool") and len(call.args) == 1 and isinstance(call.func, ast.Name):
            return _as_number(self.of(call.args[0], function, depth + 1), name)
        if name == "dict" and isinstance(call.func, ast.Name):
            return self._dict_value(call, function, depth)
        return None

    def _key(self, base: ast.expr, key: str, function: Function, depth: int) -> Value | None:
        """`cfg["data"]["num_workers"]`: from a dict in the code, else from the project's config files."""
        inside = self.origins.entries(base, function, depth + 1)
        if inside is not None:
            return self._entry(inside.get(key), f"{dotted_name(base)}[{key!r}]", depth)
        if is_call(base, "vars") and base.args:
            return self._attribute(ast.copy_location(ast.Attribute(base.args[0], key), base), function, depth)
        path: list[str] = []
        names = base
        while isinstance(names, ast.Subscript) and isinstance(names.slice, ast.Constant):
            path.insert(0, str(names.slice.value))
            names = names.value
        chain = dotted_name(names).split(".")
        return self._setting(key, chain, path, function, depth) if chain[0] else None

    def _entry(self, found: tuple[ast.expr, Function] | None, how: str, depth: int) -> Value | None:
        known = None if found is None else self.of(*found, depth + 1)
        return None if known is None else replace(known, how=known.how or how, is_set=True)

    # Settings that are set elsewhere.

    def _setting(self, attr: str, chain: list[str], below: list[str], function: Function, depth: int) -> Value | None:
        """`args.workers`, `self.cfg.data.workers`, `cfg["data"]["workers"]`; `below` are the keys after the names."""
        at = next((n for n, part in enumerate(chain) if is_settings_name(part)), None)
        root = self.origins.of(ast.Name(chain[0], ast.Load()), function) if chain[0] != "self" else None
        if at is None:
            if root is None or not is_config_load(root[0]):
                return None
            at = 0
        path = (*chain[at + 1 :], *below, attr)
        stored = [value for where, value in self._stores(attr) if where[-len(path) :] == path]
        if len(path) == 1 and attr in self._options:
            # The default in this file, else the one that all files agree on.
            here = [value for value, of in self._options[attr] if of is function.module]
            default = _common_value(here or [value for value, _ in self._options[attr]])
            return _common_value([default, *stored])
        named = self.configs.named_in(root[0]) if root is not None else frozenset()
        found = [*self._in_files(path, named), *stored]
        return _common_value(found) if found else self._of_settings_class(attr, function, depth)

    def _in_files(self, path: tuple[str, ...], named: frozenset[str]) -> list[Value]:
        return [
            Value(leaf.value, Place(leaf.file, leaf.line or 1), ".".join(path), is_set=True)
            for leaf in self.configs.at(path, named)
        ]

    def _stores(self, attr: str) -> list[tuple[tuple[str, ...], Value | None]]:
        """Values assigned to settings, by their path; None if they are not known."""
        if attr not in self._stored:
            self._stored[attr] = []  # while they are being looked at
            self._stored[attr] = [
                (path, known and replace(known, how=".".join(path), is_direct=False, is_set=True))
                for path, value, function in find_stores(self.project, attr)
                for known in [self.of(value, function, 1)]
            ]
        return self._stored[attr]

    def _of_settings_class(self, attr: str, function: Function, depth: int) -> Value | None:
        """The field of a settings class, if the object comes from a parser that cannot be followed."""
        if attr not in self._held:
            self._held[attr] = find_settings_classes(self.project, attr)
        here = [cls for cls in self._held[attr] if cls.module is function.module]
        return _common_value([self.field(cls, attr, depth + 1) for cls in here or self._held[attr]])

    def _flag(self, node: ast.expr, function: Function) -> Option | None:
        """`_WORKERS = flags.DEFINE_integer("workers", 0, …)`, read as `_WORKERS.value`."""
        origin = self.origins.of(node, function)
        if origin is None or not isinstance(origin[0], ast.Call) or not called_name(origin[0]).startswith("DEFINE_"):
            return None
        return next((option for option in find_options(origin[1].module) if option.node is origin[0]), None)

    def default_of(self, option: Option) -> Value | None:
        """The value of an option that is not given."""
        how = message("source.default", name=option.written)
        if option.default is None:
            switch = option.switch
            place = option.function.module.place(option.node)
            return None if switch is None else Value(switch, place, how, is_set=True)
        # Names in a decorator of click are those of the module.
        inside = option.function if option.of is None else option.function.module.body
        known = self.of(option.default, inside, 1)
        if option.is_number:
            known = _as_number(known, "int")
        return None if known is None else replace(known, how=how, is_direct=False, is_set=True)

    @cached_property
    def _options(self) -> dict[str, list[tuple[Value | None, Module]]]:
        found: dict[str, list[tuple[Value | None, Module]]] = {}
        for module in filter(declares_options, self.project.modules):
            later = {name: (value, function) for name, value, function in find_set_defaults(module)}
            for option in find_options(module):
                value = self.default_of(option)
                if option.name in later:
                    known = self.of(*later[option.name], 1)
                    value = known and replace(known, how=message("source.default", name=option.written), is_set=True)
                found.setdefault(option.name, []).append((value, module))
        return found


def _as_number(known: Value | None, kind: str) -> Value | None:
    """`int("4")`: the number in the text of an environment variable or an option."""
    if known is None or not isinstance(known.value, str):
        return known
    text = known.value.strip()
    if kind == "int":
        return replace(known, value=int(text)) if text.isdigit() else None
    return replace(known, value=bool(text))


def _common_value(values: list[Value | None]) -> Value | None:
    """The value that all have; None if one is not known or two differ."""
    first = values[0] if values else None
    if first is None or any(value is None or value.value != first.value for value in values):
        return None
    return first


# Edits that change a value where it is written: an option's default, a field, a constant, a key of a config file.


_WORDS: dict[Any, tuple[str, ...]] = {True: ("true", "yes", "on"), False: ("false", "no", "off"), None: ("null", "~")}


def replace_value(project: Project, value: Value, new: bool | int, word: str) -> Edit | None:
    """Puts `new` in the place of a value whose name has `word` in it."""
    module = next((other for other in project.modules if other.shown == value.place.file), None)
    if module is None:
        return _in_config(project, value, new, word)
    node = _constant_at(module, value)
    if node is None:
        return None
    before = module.lines[node.lineno - 1].encode()[: node.col_offset].decode(errors="ignore")
    if word not in f"{before} {value.names}".lower() or not _is_the_only_one(project, value, module, node):
        return None
    return Edit(module.place(node), str(new))


def _constant_at(module: Module, value: Value) -> ast.Constant | None:
    """The literal of a value."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and module.place(node) == value.place:
            same = node.value == value.value and type(node.value) is type(value.value)
            return node if same else None
    return None


def _is_the_only_one(project: Project, value: Value, module: Module, node: ast.Constant) -> bool:
    """Would the new value reach its loader, and only that?"""
    holder = next(parent for parent, _ in module.ancestors(node) if not isinstance(parent, ast.keyword))
    if isinstance(holder, ast.Call):
        action = argument(holder, "action")
        if isinstance(action, ast.Constant) or argument(holder, "is_flag") is not None:
            return False  # the default of a switch is not written there
        if not value.how:
            # An argument: other calls may pass something else.
            name = called_name(holder)
            return sum(len(other.calls.get(name, ())) for other in project.mentioning(name)) == 1
    elif not isinstance(holder, ast.Assign | ast.AnnAssign | ast.Dict | ast.arguments):
        return False
    if value.option is None:
        return True
    named = re.compile(rf"[\"']{value.option}[\"']")
    return sum(bool(named.search(other.text)) for other in project.modules) == 1


def _in_config(project: Project, value: Value, new: bool | int, word: str) -> Edit | None:
    key = value.names.split(".")[-1]
    if word not in key.lower():
        return None
    pattern = re.compile(rf"^([^#\n]*?[\"']?\b{re.escape(key)}[\"']?\s*[:=]\s*)([^\s,#}}\]]+)", re.M)
    holding = [name for name in project.configs if pattern.search(project.read(name))]
    if holding != [value.place.file]:
        return None  # which of them a run reads is not known
    lines = project.read(value.place.file).split("\n")
    found = pattern.match(lines[value.place.line - 1]) if value.place.line <= len(lines) else None
    is_word = isinstance(value.value, bool) or value.value is None
    known = _WORDS[value.value] if is_word else (str(value.value),)
    if found is None or found[2].lower() not in known:
        return None
    first = len(found[1]) + 1
    place = Place(value.place.file, value.place.line, first, value.place.line, first + len(found[2]))
    return Edit(place, str(new).lower())
