"""The imports a fix needs: where they go, and whether they are there already."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.records.source import Edit
from flatout.source.module import Module
from flatout.source.nodes import bound_names

_Import = ast.Import | ast.ImportFrom


def imported(module: Module, statement: str) -> Edit | tuple[()] | None:
    """Puts an import among those of the file; nothing to do gives (), and None if its name means something else."""
    wanted = ast.parse(statement).body[0]
    assert isinstance(wanted, ast.Import | ast.ImportFrom), statement
    brought = set(_brought(wanted))
    if brought <= {pair for one in _at_the_top(module.tree.body) for pair in _brought(one)}:
        return ()
    names = {name for name, _ in brought}
    if any(name in names and (name, meaning) not in brought for name, meaning in _bound(module)):
        return None
    return _beside(module, wanted, statement)


def _beside(module: Module, wanted: _Import, statement: str) -> Edit:
    """Behind the import that is most like it: of the same package, else the last of the first block of them."""
    head = _head(module.tree.body)
    imports = [one for one in head if isinstance(one, ast.Import | ast.ImportFrom)]
    plain = [one for one in imports if not _is_future(one)]
    same = [one for one in plain if _package(one) == _package(wanted)]
    after = (same or plain or imports or head)[-1:]
    if after:
        line = after[0].end_lineno or after[0].lineno
        return Edit(module.at(line, len(module.lines[line - 1]) + 1), f"\n{statement}")
    first = module.tree.body[0]
    decorators = getattr(first, "decorator_list", [])
    return Edit(module.at(min([first.lineno, *(one.lineno for one in decorators)])), f"{statement}\n")


def _head(body: list[ast.stmt]) -> list[ast.stmt]:
    """The docstring and the first block of imports."""
    found: list[ast.stmt] = []
    for at, one in enumerate(body):
        is_docstring = at == 0 and isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
        if not isinstance(one, ast.Import | ast.ImportFrom) and not is_docstring:
            break
        found.append(one)
    return found


def _at_the_top(body: list[ast.stmt]) -> Iterator[_Import]:
    """Imports that run with the file: also in `try` and `if`, not those in functions."""
    for one in body:
        if isinstance(one, ast.Import | ast.ImportFrom):
            yield one
        elif isinstance(one, ast.Try | ast.If | ast.With):
            for name in ("body", "orelse", "finalbody"):
                yield from _at_the_top(getattr(one, name, []))


def _brought(node: _Import) -> list[tuple[str, str]]:
    """Names that an import binds, each with what it means."""
    if isinstance(node, ast.ImportFrom):
        return [(one.asname or one.name, f"{'.' * node.level}{node.module or ''}.{one.name}") for one in node.names]
    found = []
    for one in node.names:
        if one.asname:
            found.append((one.asname, one.name))
        else:
            # `import torch.nn` binds torch, as `import torch` does, and loads more.
            parts = one.name.split(".")
            found += [(parts[0], ".".join(parts[: at + 1])) for at in range(len(parts))]
    return found


def _bound(module: Module) -> Iterator[tuple[str, str]]:
    """Names of the file that an import may take the place of, with what they mean where that is an import."""
    for one in ast.walk(module.tree):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield one.name, ""
        elif isinstance(one, ast.Import):
            for alias in one.names:
                top = alias.name.split(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        elif isinstance(one, ast.ImportFrom):
            yield from _brought(one)
        elif isinstance(one, ast.arg):
            yield one.arg, ""
        elif isinstance(one, ast.Name):
            yield from ((name, "") for name in bound_names(one))


def _package(node: _Import) -> str:
    name = node.names[0].name if isinstance(node, ast.Import) else node.module or ""
    return name.split(".")[0]


def _is_future(node: _Import) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
