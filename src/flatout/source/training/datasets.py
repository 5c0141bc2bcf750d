"""The datasets of a training: their classes, the loaders they are given to, and what runs to make a sample."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from flatout.source.flow.guards import is_evaluation
from flatout.source.project.project import Project
from flatout.source.syntax.module import Class, Function
from flatout.source.syntax.nodes import MAX_HOPS, all_arguments, called_name, dotted_name
from flatout.source.training.loaders import Loader
from flatout.source.training.regions import Training

_MAKES = ("__getitem__", "__getitems__", "__iter__")
# Functions that return parts of the datasets they are given, or the datasets themselves.
_WRAPPERS = {"random_split", "Subset", "ConcatDataset", "ChainDataset", "StackDataset", "list", "tuple", "dict"}
_MOST_FUNCTIONS = 60


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    cls: Class
    # `__getitem__` or `__iter__`, and all functions of the project that these call.
    functions: tuple[Function, ...]
    # Those that are given it; if that is not certain, those of its training whose dataset is not known.
    loaders: tuple[Loader, ...]
    is_certain: bool

    @property
    def trains(self) -> tuple[Loader, ...]:
        return tuple(loader for loader in self.loaders if loader.trains)


def find_datasets(project: Project, training: Training, loaders: Iterable[Loader]) -> Iterator[Dataset]:
    """Classes that loaders are given, then other datasets in files of a training."""
    given: dict[int, tuple[Class, list[Loader]]] = {}
    open_loaders = []
    for loader in loaders:
        classes = _DatasetClasses(project).classes(loader)
        for cls in classes:
            given.setdefault(id(cls), (cls, []))[1].append(loader)
        if not classes:
            open_loaders.append(loader)
    for cls, of in given.values():
        yield Dataset(cls, _sample_functions(cls, project), tuple(of), True)
    for module in project.mentioning("__getitem__") if open_loaders else ():
        together = [other for other in open_loaders if training.are_together(other.function.module, module)]
        for cls in module.classes.values() if together else ():
            is_dataset = project.is_a(cls, "Dataset") and any(project.methods(cls, name) for name in _MAKES)
            if id(cls) not in given and is_dataset and not is_evaluation(cls.name):
                yield Dataset(cls, _sample_functions(cls, project), tuple(together), False)


def _sample_functions(cls: Class, project: Project) -> tuple[Function, ...]:
    found: dict[int, Function] = {}
    waiting = [(method, 0) for name in _MAKES for method in project.methods(cls, name)]
    while waiting and len(found) < _MOST_FUNCTIONS:
        function, depth = waiting.pop(0)
        if id(function) in found:
            continue
        found[id(function)] = function
        if depth < MAX_HOPS:
            callees = [callee for call in function.calls for callee in project.resolve(call, function)]
            waiting += [(callee, depth + 1) for callee in callees if callee.name != "__init__"]
    return tuple(found.values())


class _DatasetClasses:
    """Finds the classes of the dataset that a loader is given."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._seen: set[tuple[int, int]] = set()

    def classes(self, loader: Loader) -> list[Class]:
        node = loader.dataset
        found = self._of(node, loader.function, 0) if node is not None else []
        makes = [cls for cls in found if any(self.project.methods(cls, name) for name in _MAKES)]
        return list({id(make): make for make in makes}.values())

    def _of(self, node: ast.expr, function: Function, depth: int) -> list[Class]:
        if depth > MAX_HOPS or (id(node), id(function)) in self._seen:
            return []
        self._seen.add((id(node), id(function)))
        if isinstance(node, ast.IfExp):
            return self._all((node.body, node.orelse), function, depth)
        if isinstance(node, ast.List | ast.Tuple):
            return self._all(node.elts, function, depth)
        if isinstance(node, ast.Dict):
            return self._all(node.values, function, depth)
        if isinstance(node, ast.DictComp):
            return self._of(node.value, function, depth + 1)
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self._of(node.elt, function, depth + 1)
        if isinstance(node, ast.Subscript | ast.Starred):
            return self._of(node.value, function, depth + 1)
        if isinstance(node, ast.Call):
            return self._of_call(node, function, depth)
        sources = self.project.sources(dotted_name(node), function)
        return [cls for value, scope in sources for cls in self._of(value, scope, depth + 1)]

    def _all(self, nodes: Iterable[ast.expr], function: Function, depth: int) -> list[Class]:
        return [cls for node in nodes for cls in self._of(node, function, depth + 1)]

    def _of_call(self, call: ast.Call, function: Function, depth: int) -> list[Class]:
        if called_name(call) in _WRAPPERS:
            return self._all(all_arguments(call), function, depth)
        made = self.project.class_of(call, function)
        if made is not None:
            return [made]
        found = []
        for callee in self.project.resolve(call, function):
            returned = [node.value for node in ast.walk(callee.node) if isinstance(node, ast.Return)]
            found += self._all([value for value in returned if value is not None], callee, depth)
        return found
