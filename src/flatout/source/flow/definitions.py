"""Reaching definitions: the expression that a name stands for, and the entries of a dict or namespace."""

from __future__ import annotations

import ast

from flatout.source.project.project import Project
from flatout.source.syntax.module import Function, Module, own_nodes
from flatout.source.syntax.nodes import MAX_HOPS, called_name, defaults, dotted_name, receiver_of

# Callers of a function that are looked at for what they pass: where so many agree, the others do as well.
MOST_CALLERS = 20
# Functions and classes that make an object of the entries they are given.
_NAMESPACES = {
    "dict", "SimpleNamespace", "Namespace", "EasyDict", "edict", "AttrDict", "DotMap", "ConfigDict", "Munch",
    "munchify", "Box", "Dict", "CfgNode", "CN", "OrderedDict", "DotDict", "AttributeDict", "HParams",
}  # fmt: skip
_COPIES = {"copy", "deepcopy"}

Definition = tuple[ast.expr, Function]
Entries = dict[str, Definition]


class Definitions:
    """Follows names through the functions and files of a project. Where callers disagree, it gives None."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def of(self, node: ast.expr, function: Function, depth: int = 0) -> Definition | None:
        """The expression that this one gets its value from, with the function it is in."""
        if depth > MAX_HOPS:
            return None
        if isinstance(node, ast.Name):
            return self._name(node.id, function, depth)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, function, depth)
        if isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            inside = self.entries(node.value, function, depth + 1) if isinstance(key, str) else None
            return None if inside is None or key not in inside else self.of(*inside[key], depth + 1)
        if isinstance(node, ast.Call):
            return self._call(node, function, depth)
        return node, function

    def entries(self, node: ast.expr, function: Function, depth: int = 0) -> Entries | None:
        """All entries of a dict or namespace; None where there may be others."""
        origin = self.of(node, function, depth + 1)
        if origin is None:
            return None
        made, inside = origin
        if isinstance(made, ast.Dict):
            found: Entries | None = self._of_dict(made, inside, depth)
        elif isinstance(made, ast.Call) and is_namespace(made):
            found = self._of_call(made, inside, depth)
        else:
            return None
        # Under its name here, and under those that it has where it is made.
        names = [name for name, values in inside.bindings.items() if any(value is made for value in values)]
        changed = {dotted_name(node): function, **dict.fromkeys(names, inside)}
        if found is None or any(_is_changed(name, where) for name, where in changed.items() if name):
            return None
        return found

    def _of_dict(self, node: ast.Dict, function: Function, depth: int) -> Entries | None:
        found: Entries = {}
        for key, item in zip(node.keys, node.values, strict=True):
            if key is None:
                more = self.entries(item, function, depth + 1)
                if more is None:
                    return None
                found |= more
            elif isinstance(key, ast.Constant):
                found[str(key.value)] = (item, function)
            else:
                return None
        return found

    def _of_call(self, call: ast.Call, function: Function, depth: int) -> Entries | None:
        found: Entries = {}
        given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg is None)]
        for value in given:
            more = self.entries(value, function, depth + 1)
            if more is None:
                return None
            found |= more
        return found | {keyword.arg: (keyword.value, function) for keyword in call.keywords if keyword.arg is not None}

    # Names.

    def _name(self, name: str, function: Function, depth: int) -> Definition | None:
        found = self.project.binding(name, function)
        if found is None or (found.is_parameter and found.values):
            return None  # either what a caller passes, or what is assigned here
        if found.is_parameter:
            return self._parameter(name, found.function, depth)
        return self.of(found.values[0], found.function, depth + 1) if len(found.values) == 1 else None

    def _parameter(self, name: str, function: Function, depth: int) -> Definition | None:
        plain = function.definition
        assert plain is not None
        default = defaults(plain).get(name)
        left_out = None if default is None else (default, function)
        found: list[Definition | None] = []
        for call, caller in self.project.callers(function)[:MOST_CALLERS]:
            given = function.arguments(call).get(name)
            found.append(left_out if given is None else self.of(given, caller, depth + 1))
        first = found[0] if found else left_out
        agree = first is not None and all(other is not None and other[0] is first[0] for other in found)
        return first if agree else None

    def _attribute(self, node: ast.Attribute, function: Function, depth: int) -> Definition | None:
        base = node.value
        if isinstance(base, ast.Name) and base.id == "self" and function.owner is not None:
            values = function.owner.assigned(node.attr)
            return self.of(*values[0], depth + 1) if len(values) == 1 else None
        meant = self.project.lookup(base.id, function) if isinstance(base, ast.Name) else None
        if isinstance(meant, Module):
            return self._name(node.attr, meant.body, depth + 1)
        inside = self.entries(base, function, depth + 1)
        return None if inside is None or node.attr not in inside else self.of(*inside[node.attr], depth + 1)

    def _call(self, call: ast.Call, function: Function, depth: int) -> Definition | None:
        name = called_name(call)
        if name in _COPIES:
            of = call.args[0] if call.args else call.func.value if isinstance(call.func, ast.Attribute) else None
            return None if of is None else self.of(of, function, depth + 1)
        if is_namespace(call):
            return call, function
        made = self.project.resolve(call, function)
        if len(made) == 1 and made[0].name != "__init__":
            returned = made[0].returned()
            if len(returned) == 1 and returned[0] is not None:
                return self.of(returned[0], made[0], depth + 1)
        return call, function


def is_namespace(call: ast.Call) -> bool:
    return called_name(call) in _NAMESPACES or dotted_name(call.func) == "OmegaConf.create"


def _is_changed(name: str, function: Function) -> bool:
    """Are entries added or removed after it was made?"""
    last = name.split(".")[-1]
    if last not in function.module.text:
        return False
    for node in own_nodes(function):
        if receiver_of(node, ("update", "setdefault", "pop")) == name:
            return True
        if not isinstance(node, ast.Subscript | ast.Attribute) or not isinstance(node.ctx, ast.Store):
            continue
        if dotted_name(node.value) == name:
            return isinstance(node, ast.Subscript) or name != "self"
    return False
