"""The DataLoaders of a project: which settings reach them, what they are for, and where their samples are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from flatout.records.source import Place
from flatout.source.flow.devices import moves_to
from flatout.source.flow.guards import is_evaluation
from flatout.source.flow.values import Value, Values
from flatout.source.project.project import Project
from flatout.source.syntax.module import Class, Function, Module, own_nodes
from flatout.source.syntax.nodes import (
    FEW_HOPS,
    MAX_HOPS,
    all_arguments,
    all_names_in,
    argument,
    bound_names,
    callable_of,
    called_name,
    defaults,
    dotted_name,
    has_decorator,
    is_call,
    last_name,
    names_in,
    parameter_annotation,
    walk_scope,
)
from flatout.source.training.regions import Training

_PARAMETERS = "dataset batch_size shuffle sampler batch_sampler num_workers collate_fn pin_memory drop_last"
_POSITIONS = {name: position for position, name in enumerate(_PARAMETERS.split())}
# Packages whose DataLoader is torch's, or derived from it.
_LIBRARIES = {"torch", "dgl", "torch_geometric", "monai"}
_OF_GRAPHS = "GraphDataLoader"
_DERIVED = re.compile(r"^class[ \t]+(\w+)[ \t]*\([^)]*\bDataLoader\b", re.M)
_RENAMED = re.compile(r"\bDataLoader[ \t]+as[ \t]+(\w+)")


@dataclass(frozen=True, slots=True)
class Setting:
    """`missing`: torch's default. `known`: `value` reaches the loader. `unknown`: it is not certain."""

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
    # If its class is derived from torch's in the project: its `__init__`, and the call of torch's in that.
    made_by: Function | None = None
    handed_on: ast.Call | None = None

    @property
    def dataset(self) -> ast.expr | None:
        return argument(self.call, "dataset", 0)

    @property
    def place(self) -> Place:
        return self.function.module.place(self.call)


def find_loaders(project: Project) -> Iterator[Loader]:
    """All calls that make a DataLoader of torch, or of a class derived from it."""
    for name in _names(project):
        for module in project.mentioning(name):
            for call, function in module.calls.get(name, ()):
                meant = project.lookup(name, function) if isinstance(call.func, ast.Name) else None
                own = meant if isinstance(meant, Class) else None
                # Without a dataset it is an annotation, or the call of a method with this name.
                if argument(call, "dataset", 0) is None or not _is_torch_own(name, own, module):
                    continue
                makes = own.methods.get("__init__") if own is not None else None
                handed = (
                    next((inner for inner in makes.calls if called_name(inner) == "__init__"), None) if makes else None
                )
                yield Loader(call, function, serves_training(call, function, project), makes, handed)


def _names(project: Project) -> list[str]:
    found = {"DataLoader": None}
    for module in project.mentioning("DataLoader"):
        found |= dict.fromkeys((*_DERIVED.findall(module.text), *_RENAMED.findall(module.text)))
    return [*found, _OF_GRAPHS]


def _is_torch_own(name: str, own: Class | None, module: Module) -> bool:
    """Is a class torch's DataLoader or derived from it, and not another class of this name?"""
    if own is None:
        return name == "DataLoader" or module.library_of(name) in _LIBRARIES
    if own.name == "DataLoader":
        return any(base.endswith("data.DataLoader") for base in own.bases)
    of_library = own.module.library_of("DataLoader") in _LIBRARIES
    return any(base.endswith("data.DataLoader") or (base == "DataLoader" and of_library) for base in own.bases)


def loader_argument(loader: Loader, name: str) -> ast.expr | None:
    """The argument that the call gives for a parameter of DataLoader."""
    return argument(loader.call, name, _POSITIONS.get(name))


def accepts_setting(loader: Loader, name: str) -> bool:
    """Can the call be given another argument of DataLoader?"""
    made_by = loader.made_by
    if made_by is None or made_by.definition is None:
        return True
    return made_by.definition.args.kwarg is not None or name in made_by.parameters


def loader_setting(loader: Loader, name: str, values: Values) -> Setting:
    """The value that reaches the loader for one of its parameters."""
    if loader.handed_on is not None and (handed := argument(loader.handed_on, name, _POSITIONS.get(name))) is not None:
        return _derived_setting(loader, handed, values)
    given = loader_argument(loader, name)
    if given is not None:
        return _known_setting(values.of(given, loader.function))
    for keyword in loader.call.keywords:
        if keyword.arg is not None:
            continue
        more = values.origins.entries(keyword.value, loader.function)
        if more is None:
            return Setting("unknown")
        if name in more:
            made = ast.Subscript(keyword.value, ast.Constant(name), ast.Load())
            ast.fix_missing_locations(ast.copy_location(made, keyword.value))
            return _known_setting(values.of(made, loader.function))
    if any(isinstance(value, ast.Starred) for value in loader.call.args):
        return Setting("unknown")
    return Setting("missing")


def _known_setting(value: Value | None) -> Setting:
    return Setting("unknown") if value is None else Setting("known", value)


def _derived_setting(loader: Loader, handed: ast.expr, values: Values) -> Setting:
    """The value that a derived class passes to torch's: a parameter of its own that this call gives or leaves out."""
    made_by = loader.made_by
    if made_by is None or made_by.definition is None:
        return Setting("unknown")
    if not isinstance(handed, ast.Name) or handed.id not in made_by.parameters:
        return Setting("unknown")
    given = made_by.arguments(loader.call).get(handed.id)
    if given is not None:
        return _known_setting(values.of(given, loader.function))
    left = defaults(made_by.definition).get(handed.id)
    is_open = any(keyword.arg is None for keyword in loader.call.keywords)
    off = isinstance(left, ast.Constant) and not left.value and not is_open
    # A default that is off counts as left out by the call.
    return Setting("missing") if off else Setting("unknown")


# Where its samples are, and whether it is for training.

_WRAPPERS = {"random_split", "Subset", "ConcatDataset", "RandomSplit"}
# Datasets whose samples are in memory.
_IN_MEMORY = {"TensorDataset"}
_ARRAYS = ("np", "numpy", "torch")
_MAY_LIE_ELSEWHERE = {"load", "memmap", "open_memmap", "fromfile"}
_OF_ARRAYS = re.compile(r"^(typing\.)?(List|list|Tuple|tuple)\b|(^|\.)(ndarray|Tensor)$")
# In names of data only: elsewhere `dev` is a device.
_DEV = re.compile(r"(^|_)dev(_?(set|data|loader|dataset|dataloader|dl|ds))?$", re.I)


def serves_training(call: ast.Call, function: Function, project: Project) -> bool:
    """By names and uses; not if a dataset makes it to go through its own samples once."""
    of = function.owner
    if of is not None and any(project.is_a(of, ending) for ending in ("Dataset", "Loader", "Sampler")):
        return False
    return _is_named_for_training(call, function) and not _evaluates(call, function)


def is_in_memory(loader: Loader, project: Project) -> bool:
    """Are its samples in memory, so that workers would only copy them?"""
    return loader.dataset is not None and _in_memory(loader.dataset, loader.function, project, 0)


def has_device_samples(loader: Loader, project: Project) -> bool:
    """Do its samples come from a device, by its dataset, its class, its collate function or a default device?"""
    if project.mentioning("set_default_device") or project.mentioning("set_default_tensor_type"):
        return True
    dataset, function = loader.dataset, loader.function
    if dataset is None:
        return False
    if any(isinstance(node, ast.Call) and moves_to(node) == "device" for node in _nodes_of_dataset(dataset, function)):
        return True
    cls = project.class_of(dataset, function)
    collate = loader_argument(loader, "collate_fn")
    meant = project.lookup(collate.id, function) if isinstance(collate, ast.Name) else None
    making = [*(cls.methods.values() if cls is not None else ()), *([meant] if isinstance(meant, Function) else [])]
    return any(moves_to(call) == "device" for each in making for call in each.calls)


def _nodes_of_dataset(dataset: ast.expr, function: Function) -> Iterator[ast.AST]:
    """Nodes of the expression that makes the dataset: `TensorDataset(x.to(device))`, or a name bound to it."""
    yield from ast.walk(dataset)
    made = function.bindings.get(dataset.id, ()) if isinstance(dataset, ast.Name) else ()
    for value in made if len(made) == 1 else ():
        yield from ast.walk(value)


# In memory.


def _in_memory(node: ast.expr, function: Function, project: Project, depth: int) -> bool:
    if depth > FEW_HOPS:
        return False
    if isinstance(node, ast.Call):
        return _is_made_in_memory(node, function, project, depth)
    if isinstance(node, ast.List | ast.ListComp | ast.Tuple):
        return True
    if isinstance(node, ast.Name):
        known = _named_in_memory(node.id, function, project, depth)
        if known is not None:
            return known
    return _returns_samples_at_once(node, function, project)


def _is_made_in_memory(call: ast.Call, function: Function, project: Project, depth: int) -> bool:
    name = called_name(call)
    if name in _IN_MEMORY or (
        name not in _MAY_LIE_ELSEWHERE and dotted_name(call.func) in (f"{of}.{name}" for of in _ARRAYS)
    ):
        return True
    if name in _WRAPPERS and call.args:
        of = call.args[0]
        several = (
            of.elts if isinstance(of, ast.List | ast.Tuple) else [of.elt] if isinstance(of, ast.ListComp) else [of]
        )
        return bool(several) and all(_in_memory(dataset, function, project, depth + 1) for dataset in several)
    made = project.resolve(call, function)
    if len(made) == 1 and made[0].name != "__init__":
        returned = made[0].returned()
        # Of a returned tuple it is not known which part this is.
        return bool(returned) and all(
            value is not None and not isinstance(value, ast.Tuple) and _in_memory(value, made[0], project, depth + 1)
            for value in returned
        )
    return _returns_samples_at_once(call, function, project)


def _named_in_memory(name: str, function: Function, project: Project, depth: int) -> bool | None:
    """None if it is not known."""
    for scope in function.scopes():
        values, given = scope.bindings.get(name, []), name in scope.parameters
        if values or given:
            in_memory = not given or _is_annotated_in_memory(name, scope)
            return in_memory and all(_in_memory(value, scope, project, depth + 1) for value in values)
    return None


def _is_annotated_in_memory(name: str, function: Function) -> bool:
    """`samples: list[Tensor]`, `x: np.ndarray`."""
    noted = parameter_annotation(function.definition, name)
    return noted is not None and bool(_OF_ARRAYS.search(ast.unparse(noted).split("[")[0]))


def _returns_samples_at_once(node: ast.expr, function: Function, project: Project) -> bool:
    """Does its class return samples without any call: no reading, decoding or transforming?"""
    cls = project.class_of(node, function)
    makes = project.methods(cls, "__getitem__") if cls is not None else []
    return bool(makes) and not any(isinstance(call, ast.Call) for call in own_nodes(makes[0]))


# For training.


def _is_named_for_training(call: ast.Call, function: Function) -> bool:
    """By the names it is bound to, the key it is kept under, its dataset, and the function that makes it."""
    names = [*_bound_to(call, function)]
    dataset = argument(call, "dataset", 0)
    if dataset is not None:
        texts = (node.value for node in ast.walk(dataset) if isinstance(node, ast.Constant))
        names += [*all_names_in(dataset), *(text for text in texts if isinstance(text, str))]
    names.append(function.name)
    return not any(is_evaluation(name) or _DEV.search(name) for name in names)


def _bound_to(call: ast.Call, function: Function) -> Iterator[str]:
    for node in own_nodes(function):
        if isinstance(node, ast.Assign) and any(child is call for child in ast.walk(node.value)):
            for target in node.targets:
                yield from bound_names(target)
                yield from (inner.attr for inner in ast.walk(target) if isinstance(inner, ast.Attribute))
        elif isinstance(node, ast.keyword) and node.arg is not None and node.value is call:
            yield node.arg
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and any(part is call for part in ast.walk(value)):
                    yield str(key.value)


def _evaluates(call: ast.Call, function: Function) -> bool:
    """Is it only iterated without gradients, or passed to an evaluation?"""
    name = next((name for name, values in function.bindings.items() if values == [call] and "." not in name), None)
    if name is None or function.definition is None:
        return False
    without_gradients = {
        id(part)
        for block in own_nodes(function)
        if isinstance(block, ast.With | ast.AsyncWith)
        and any(last_name(callable_of(item.context_expr)) in _NO_GRADIENTS for item in block.items)
        for part in walk_scope(block)
    }
    all_of_it = has_decorator(function.definition, _NO_GRADIENTS)
    served = [
        *(
            all_of_it or id(node) in without_gradients
            for node in own_nodes(function)
            if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) and name in names_in(node.iter)
        ),
        *(
            is_evaluation(called_name(inner))
            for inner in function.calls
            if any(isinstance(given, ast.Name) and given.id == name for given in inner.args)
            and called_name(inner) not in _LOOKING
        ),
        # Uses after it is returned are not known.
        *(
            False
            for node in own_nodes(function)
            if isinstance(node, ast.Return | ast.Yield) and node.value is not None and _is_returned(name, node.value)
        ),
    ]
    return bool(served) and all(served)


def _is_returned(name: str, value: ast.expr) -> bool:
    several = (
        value.elts if isinstance(value, ast.Tuple | ast.List) else value.values if isinstance(value, ast.Dict) else ()
    )
    return any(isinstance(part, ast.Name) and part.id == name for part in (value, *several))


_NO_GRADIENTS = {"no_grad", "inference_mode"}
# Functions that do not use its batches, or wrap it for a loop here.
_LOOKING = {"len", "enumerate", "tqdm", "iter", "zip", "track", "trange", "print"}


def resolve_collate(given: ast.expr, function: Function, project: Project) -> list[Function]:
    """The functions of the project that a `collate_fn` may be."""
    if isinstance(given, ast.IfExp):
        return [*resolve_collate(given.body, function, project), *resolve_collate(given.orelse, function, project)]
    if is_call(given, "partial") and given.args:
        return resolve_collate(given.args[0], function, project)
    if isinstance(given, ast.Name) and len(values := function.bindings.get(given.id, [])) == 1:
        return resolve_collate(values[0], function, project)
    return project.resolve(ast.copy_location(ast.Call(given, [], []), given), function)


# The datasets of a training: their classes, the loaders they are given to, and what runs to make a sample.


_MAKES = ("__getitem__", "__getitems__", "__iter__")
# Functions that return parts of the datasets they are given, or the datasets themselves.
_COMBINING = {"random_split", "Subset", "ConcatDataset", "ChainDataset", "StackDataset", "list", "tuple", "dict"}
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
        if called_name(call) in _COMBINING:
            return self._all(all_arguments(call), function, depth)
        made = self.project.class_of(call, function)
        if made is not None:
            return [made]
        found = []
        for callee in self.project.resolve(call, function):
            returned = [node.value for node in ast.walk(callee.node) if isinstance(node, ast.Return)]
            found += self._all([value for value in returned if value is not None], callee, depth)
        return found
