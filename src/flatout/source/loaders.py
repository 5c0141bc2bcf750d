"""The DataLoaders of a project: what each is for, and which settings reach it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from flatout.source.guards import is_evaluation
from flatout.source.module import Class, Function, own_nodes
from flatout.source.moves import moves_to
from flatout.source.nodes import argument, bound_names, called_name
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
_WRAPPERS = {"random_split", "Subset", "ConcatDataset", "RandomSplit"}
# Datasets that hand out what lies in memory.
_IN_MEMORY = {"TensorDataset"}


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
    # Where the project derives a class from torch's: what that hands on to it.
    handed_on: ast.Call | None = None

    @property
    def dataset(self) -> ast.expr | None:
        return argument(self.call, "dataset", 0)


def loaders_in(project: Project) -> Iterator[Loader]:
    """All calls that make torch's DataLoader."""
    for module in project.mentioning("DataLoader"):
        for call, function in module.calls.get("DataLoader", ()):
            meant = project.lookup("DataLoader", function) if isinstance(call.func, ast.Name) else None
            own = meant if isinstance(meant, Class) else None
            # Without a dataset it is a type, or the call of a method of that name.
            if (own is not None and not _is_torch_own(own)) or argument(call, "dataset", 0) is None:
                continue
            trains = _trains(call, function) and not _is_inside_data(function, project)
            yield Loader(call, function, trains, _handed_on(own) if own is not None else None)


def _is_torch_own(cls: Class) -> bool:
    """Derived from torch's, and nothing else by the same name."""
    return any(base.endswith("data.DataLoader") for base in cls.bases)


def _handed_on(cls: Class) -> ast.Call | None:
    makes = cls.methods.get("__init__")
    calls = makes.calls if makes is not None else ()
    return next((one for one in calls if called_name(one) == "__init__"), None)


def given_for(loader: Loader, name: str) -> ast.expr | None:
    """What the call says for one of the loader's parameters."""
    return argument(loader.call, name, _POSITIONS.get(name))


def setting(loader: Loader, name: str, values: Values) -> Setting:
    """What reaches the loader for one of its parameters."""
    if loader.handed_on is not None and argument(loader.handed_on, name, _POSITIONS.get(name)) is not None:
        return Setting("unknown")
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


def is_in_memory(loader: Loader, project: Project) -> bool:
    """Are its samples there at once, so that workers would only carry them about?"""
    return loader.dataset is not None and _in_memory(loader.dataset, loader.function, project, 0)


def moves_its_samples(loader: Loader, project: Project) -> bool:
    """Do its samples come from a device, as far as the class of its dataset, or a default device, tells?"""
    if project.mentioning("set_default_device") or project.mentioning("set_default_tensor_type"):
        return True
    cls = project.class_of(loader.dataset, loader.function) if loader.dataset is not None else None
    making = [*(cls.methods.values() if cls is not None else ()), *_collating(loader, project)]
    return any(moves_to(call) == "device" for one in making for call in one.calls)


def _collating(loader: Loader, project: Project) -> list[Function]:
    """The function that puts its batches together, where it is one of the project's."""
    given = given_for(loader, "collate_fn")
    meant = project.lookup(given.id, loader.function) if isinstance(given, ast.Name) else None
    return [meant] if isinstance(meant, Function) else []


def _in_memory(node: ast.expr, function: Function, project: Project, depth: int) -> bool:
    if depth > 4:
        return False
    if isinstance(node, ast.Call):
        name = called_name(node)
        if name in _IN_MEMORY:
            return True
        if name in _WRAPPERS and node.args:
            return _in_memory(node.args[0], function, project, depth + 1)
    if isinstance(node, ast.List | ast.ListComp | ast.Tuple):
        return True
    if isinstance(node, ast.Name):
        inside: Function | None = function
        while inside is not None:
            if values := inside.bindings.get(node.id):
                return all(_in_memory(one, inside, project, depth + 1) for one in values)
            inside = inside.parent
        body = function.module.body
        if values := body.bindings.get(node.id):
            return all(_in_memory(one, body, project, depth + 1) for one in values)
    cls = project.class_of(node, function)
    makes = project.methods(cls, "__getitem__") if cls is not None else []
    # Without a single call there is no reading, decoding or transforming.
    return bool(makes) and not any(isinstance(one, ast.Call) for one in own_nodes(makes[0]))


def _is_inside_data(function: Function, project: Project) -> bool:
    """A dataset, sampler or loader that goes through its own samples once, to prepare them."""
    of = function.owner
    return of is not None and any(project.is_a(of, ending) for ending in ("Dataset", "Loader", "Sampler"))


def _trains(call: ast.Call, function: Function) -> bool:
    """As its names tell: what it is bound to, the key it is kept under, its dataset, the function it is made in."""
    names = [*_bound_to(call, function)]
    dataset = argument(call, "dataset", 0)
    if dataset is not None:
        names += [one.id for one in ast.walk(dataset) if isinstance(one, ast.Name)]
        names += [one.attr for one in ast.walk(dataset) if isinstance(one, ast.Attribute)]
        names += [
            str(one.value) for one in ast.walk(dataset) if isinstance(one, ast.Constant) and isinstance(one.value, str)
        ]
    names.append(function.name)
    return not any(is_evaluation(name) for name in names)


def _bound_to(call: ast.Call, function: Function) -> Iterator[str]:
    for node in own_nodes(function):
        if isinstance(node, ast.Assign) and any(one is call for one in ast.walk(node.value)):
            for target in node.targets:
                yield from bound_names(target)
                yield from (one.attr for one in ast.walk(target) if isinstance(one, ast.Attribute))
        elif isinstance(node, ast.keyword) and node.arg is not None and node.value is call:
            yield node.arg
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and any(one is call for one in ast.walk(value)):
                    yield str(key.value)
