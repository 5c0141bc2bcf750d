"""Where code keeps its settings: names that hold them, fields of their classes, and values put into them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flatout.source.module import Class, Function
from flatout.source.nodes import callable_of, dotted
from flatout.source.project import Project

_NAMES = re.compile(
    r"^(args?|opts?|options|cfg|conf|config|configs|hparams|hp|params|settings|flags|c|_c)$"
    r"|(cfg|config|args|opt|hparams|params)$",
    re.I,
)
_CLASSES = re.compile(r"(config|configs|args|arguments|options|settings|params|hparams|cfg|flags|opts?)$", re.I)


def is_settings(name: str) -> bool:
    """Does a name tell that it holds settings?"""
    return bool(_NAMES.search(name))


def holds_settings(cls: Class) -> bool:
    """A dataclass, or a class whose name says it."""
    return is_dataclass(cls) or bool(_CLASSES.search(cls.name))


def is_dataclass(cls: Class) -> bool:
    return any(dotted(callable_of(one)).split(".")[-1] in ("dataclass", "define") for one in cls.node.decorator_list)


def field_of(cls: Class, name: str) -> ast.Assign | ast.AnnAssign | None:
    """The statement that makes an attribute of the class itself."""
    for node in cls.node.body:
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Assign):
            targets = node.targets  # type: ignore[assignment]
        else:
            continue
        if any(isinstance(one, ast.Name) and one.id == name for one in targets):
            return node
    return None


def annotation_of(cls: Class, name: str) -> str:
    found = field_of(cls, name)
    return dotted(found.annotation) if isinstance(found, ast.AnnAssign) else ""


def holders(project: Project, name: str) -> list[Class]:
    """Classes of settings that have a field of this name."""
    return [
        cls
        for module in project.mentioning(name)
        if "class " in module.text
        for cls in module.classes.values()
        if holds_settings(cls) and field_of(cls, name) is not None
    ]


def stores(project: Project, name: str) -> Iterator[tuple[tuple[str, ...], ast.expr, Function]]:
    """`args.workers = 4`, `_C.DATALOADER.NUM_WORKERS = 4`: the path below the settings, and what is put there."""
    stored = re.compile(rf"\.{re.escape(name)}\s*=[^=]")
    for module in project.mentioning(name):
        if not stored.search(module.text):
            continue
        for function in module.functions:
            for written, values in function.bindings.items():
                parts = written.split(".")
                if len(parts) < 2 or parts[-1] != name:
                    continue
                at = next((n for n, part in enumerate(parts[:-1]) if is_settings(part)), None)
                if at is not None:
                    yield from ((tuple(parts[at + 1 :]), value, function) for value in values)
