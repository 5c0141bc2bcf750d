"""The DataLoaders of a project: what each is for, and which settings reach it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from flatout.source import serving
from flatout.source.module import Class, Function, Module
from flatout.source.nodes import argument, called_name, defaults, parameters, passed
from flatout.source.project import Project
from flatout.source.values import Value, Values

_POSITIONS = {
    name: at
    for at, name in enumerate(
        [
            "dataset",
            "batch_size",
            "shuffle",
            "sampler",
            "batch_sampler",
            "num_workers",
            "collate_fn",
            "pin_memory",
            "drop_last",
        ]
    )
}
# Whose loaders are torch's, or derived from it.
_LIBRARIES = {"torch", "dgl", "torch_geometric", "monai"}
_OF_GRAPHS = "GraphDataLoader"
_DERIVED = re.compile(r"^class[ \t]+(\w+)[ \t]*\([^)]*\bDataLoader\b", re.M)
_RENAMED = re.compile(r"\bDataLoader[ \t]+as[ \t]+(\w+)")


@dataclass(frozen=True, slots=True)
class Setting:
    """`missing`: left to torch's default. `known`: `value` reaches the loader. `unknown`: it cannot be told."""

    state: Literal["missing", "known", "unknown"]
    value: Value | None = None

    def is_off(self) -> bool:
        """Left out, or known to be 0, False or None."""
        return self.state == "missing" or (self.value is not None and not self.value.value)


@dataclass(frozen=True, slots=True, eq=False)
class Loader:
    call: ast.Call
    function: Function
    trains: bool
    # Where the project derives a class from torch's: how that is made, and what it hands on to torch's.
    made_by: Function | None = None
    handed_on: ast.Call | None = None

    @property
    def dataset(self) -> ast.expr | None:
        return argument(self.call, "dataset", 0)


def loaders_in(project: Project) -> Iterator[Loader]:
    """All calls that make torch's DataLoader, or one that is derived from it, by whatever name."""
    for name in _names(project):
        for module in project.mentioning(name):
            for call, function in module.calls.get(name, ()):
                meant = project.lookup(name, function) if isinstance(call.func, ast.Name) else None
                own = meant if isinstance(meant, Class) else None
                # Without a dataset it is a type, or the call of a method of that name.
                if argument(call, "dataset", 0) is None or not _is_torch_own(name, own, module):
                    continue
                makes = own.methods.get("__init__") if own is not None else None
                handed = next((one for one in makes.calls if called_name(one) == "__init__"), None) if makes else None
                yield Loader(call, function, serving.trains(call, function, project), makes, handed)


def _names(project: Project) -> list[str]:
    found = {"DataLoader": None}
    for module in project.mentioning("DataLoader"):
        found |= dict.fromkeys((*_DERIVED.findall(module.text), *_RENAMED.findall(module.text)))
    return [*found, _OF_GRAPHS]


def _is_torch_own(name: str, own: Class | None, module: Module) -> bool:
    """Torch's, or derived from it, and nothing else by the same name."""
    if own is None:
        brought = module.imports.get(name)
        return name == "DataLoader" or (brought is not None and brought.module.split(".")[0] in _LIBRARIES)
    if own.name == "DataLoader":
        return any(base.endswith("data.DataLoader") for base in own.bases)
    brought = own.module.imports.get("DataLoader")
    of_library = brought is not None and brought.module.split(".")[0] in _LIBRARIES
    return any(base.endswith("data.DataLoader") or (base == "DataLoader" and of_library) for base in own.bases)


def given_for(loader: Loader, name: str) -> ast.expr | None:
    """What the call says for one of the loader's parameters."""
    return argument(loader.call, name, _POSITIONS.get(name))


def accepts(loader: Loader, name: str) -> bool:
    """Can the call be given one more of the loader's settings?"""
    plain = loader.made_by.definition if loader.made_by is not None else None
    return plain is None or plain.args.kwarg is not None or name in parameters(plain)


def setting(loader: Loader, name: str, values: Values) -> Setting:
    """What reaches the loader for one of its parameters."""
    if loader.handed_on is not None and (handed := argument(loader.handed_on, name, _POSITIONS.get(name))) is not None:
        return _through(loader, handed, values)
    given = given_for(loader, name)
    if given is not None:
        value = values.of(given, loader.function)
        return Setting("unknown") if value is None else Setting("known", value)
    for keyword in loader.call.keywords:
        if keyword.arg is not None:
            continue
        more = values.origins.entries(keyword.value, loader.function)
        if more is None:
            return Setting("unknown")
        if name in more:
            made = ast.Subscript(keyword.value, ast.Constant(name), ast.Load())
            ast.fix_missing_locations(ast.copy_location(made, keyword.value))
            value = values.of(made, loader.function)
            return Setting("unknown") if value is None else Setting("known", value)
    if any(isinstance(one, ast.Starred) for one in loader.call.args):
        return Setting("unknown")
    return Setting("missing")


def _through(loader: Loader, handed: ast.expr, values: Values) -> Setting:
    """What a class of the project's hands on to torch's: a parameter of its own, as this call gives or leaves it."""
    plain = loader.made_by.definition if loader.made_by is not None else None
    if plain is None or not isinstance(handed, ast.Name) or handed.id not in parameters(plain):
        return Setting("unknown")
    given = passed(loader.call, plain, True).get(handed.id)
    if given is not None:
        value = values.of(given, loader.function)
        return Setting("unknown") if value is None else Setting("known", value)
    left = defaults(plain).get(handed.id)
    is_open = any(one.arg is None for one in loader.call.keywords)
    off = isinstance(left, ast.Constant) and not left.value and not is_open
    # What is off unless the call says otherwise is said, or not, by the call.
    return Setting("missing") if off else Setting("unknown")


def is_in_memory(loader: Loader, project: Project) -> bool:
    """Are its samples there at once, so that workers would only carry them about?"""
    return serving.is_in_memory(loader.call, loader.function, project)


def moves_its_samples(loader: Loader, project: Project) -> bool:
    """Do its samples come from a device?"""
    return serving.moves_its_samples(loader.call, loader.function, project)
