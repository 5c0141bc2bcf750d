"""Edits that change a value where it is written: an option's default, a field, a constant, a key of a config file.

Only where the name there says what the value is for, and nothing else depends on it.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from flatout.records.source import Edit, Place
from flatout.source.flow.values import Value
from flatout.source.project.project import Project
from flatout.source.syntax.module import Module
from flatout.source.syntax.nodes import argument, called_name

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
