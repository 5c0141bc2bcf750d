"""What the collate functions of a project return, and whether a loader can pin it."""

from __future__ import annotations

import ast

from flatout.source.code import Code
from flatout.source.loaders import Loader
from flatout.source.module import Class, Function, own_nodes
from flatout.source.nodes import argument, called_name, dotted

# Of these alone a class gets nothing that the loader walks through.
_PLAIN = {"object", "ABC", "Generic", "Protocol"}


def collating(given: ast.expr, function: Function, code: Code) -> list[Function]:
    """The functions of the project that a `collate_fn` stands for."""
    if isinstance(given, ast.IfExp):
        return [*collating(given.body, function, code), *collating(given.orelse, function, code)]
    if isinstance(given, ast.Call) and called_name(given) == "partial" and given.args:
        return collating(given.args[0], function, code)
    if isinstance(given, ast.Name) and len(values := function.bindings.get(given.id, [])) == 1:
        return collating(values[0], function, code)
    return code.project.resolve(ast.copy_location(ast.Call(given, [], []), given), function)


def unpinnable_batch(loader: Loader, code: Code) -> Class | None:
    """The class of its batches, where the loader's pinning passes them over."""
    given = argument(loader.call, "collate_fn", 6)
    if given is None:
        return None
    for cls in _batch_classes(given, loader.function, code):
        if _is_passed_over(cls, code):
            return cls
    return None


def _batch_classes(given: ast.expr, function: Function, code: Code) -> list[Class]:
    if isinstance(given, ast.Lambda):
        made = code.project.class_of(given.body, function)
        return [made] if made is not None else []
    found = []
    for one in collating(given, function, code):
        if one.name == "__init__" and one.owner is not None:
            found.append(one.owner)
            continue
        returned = [node.value for node in own_nodes(one) if isinstance(node, ast.Return)]
        promised = _promised(one, code)
        classes = [code.project.class_of(value, one) or promised for value in returned if value is not None]
        # Where one way through it gives something else, that may be the usual one.
        found += [cls for cls in classes if cls is not None] if None not in classes else []
    return found


def _promised(function: Function, code: Code) -> Class | None:
    """The class of the project that a function says it returns, as `samples[0]` does not tell by itself."""
    said = function.node.returns if isinstance(function.node, ast.FunctionDef) else None
    meant = code.project.lookup(said.id, function) if isinstance(said, ast.Name) else None
    return meant if isinstance(meant, Class) else None


def _is_passed_over(cls: Class, code: Code) -> bool:
    """No `pin_memory`, and none of the mappings, sequences and tuples that the loader looks into."""
    if code.project.methods(cls, "pin_memory"):
        return False
    return _is_plain(cls, code, 0)


def _is_plain(cls: Class, code: Code, depth: int) -> bool:
    for name in cls.bases:
        meant = code.project.lookup(name.split(".")[-1], cls.module.body)
        if isinstance(meant, Class) and meant is not cls and depth < 5:
            if not _is_plain(meant, code, depth + 1):
                return False
        elif name.split(".")[-1] not in _PLAIN:
            return False
    # `Generic[T]` adds nothing; `dict[str, Tensor]` does.
    open_bases = [one for one in cls.node.bases if not isinstance(one, ast.Name | ast.Attribute)]
    return all(isinstance(one, ast.Subscript) and dotted(one.value).split(".")[-1] in _PLAIN for one in open_bases)
