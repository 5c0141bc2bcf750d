"""What a loader serves, and where its samples lie: training or evaluation, files, memory or a device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flatout.source.guards import is_evaluation
from flatout.source.module import Function, own_nodes
from flatout.source.moves import moves_to
from flatout.source.nodes import argument, bound_names, callable_of, called_name, dotted, names_in, parameters, within
from flatout.source.project import Project

_WRAPPERS = {"random_split", "Subset", "ConcatDataset", "RandomSplit"}
# Datasets that hand out what lies in memory.
_IN_MEMORY = {"TensorDataset"}
_ARRAYS = ("np", "numpy", "torch")
_MAY_LIE_ELSEWHERE = {"load", "memmap", "open_memmap", "fromfile"}
_OF_ARRAYS = re.compile(r"^(typing\.)?(List|list|Tuple|tuple)\b|(^|\.)(ndarray|Tensor)$")
# Of data only: elsewhere it is a device.
_DEV = re.compile(r"(^|_)dev(_?(set|data|loader|dataset|dataloader|dl|ds))?$", re.I)
_DEEPEST = 4


def trains(call: ast.Call, function: Function, project: Project) -> bool:
    """As far as names and uses tell, and not made by data that goes through its own samples once, to prepare them."""
    of = function.owner
    if of is not None and any(project.is_a(of, ending) for ending in ("Dataset", "Loader", "Sampler")):
        return False
    return _is_named_for_training(call, function) and not _evaluates(call, function)


def is_in_memory(call: ast.Call, function: Function, project: Project) -> bool:
    """Are its samples there at once, so that workers would only carry them about?"""
    dataset = argument(call, "dataset", 0)
    return dataset is not None and _in_memory(dataset, function, project, 0)


def moves_its_samples(call: ast.Call, function: Function, project: Project) -> bool:
    """Do its samples come from a device, as far as its dataset, the class of that, or a default device, tells?"""
    if project.mentioning("set_default_device") or project.mentioning("set_default_tensor_type"):
        return True
    dataset = argument(call, "dataset", 0)
    if dataset is None:
        return False
    if any(isinstance(one, ast.Call) and moves_to(one) == "device" for one in _made_of(dataset, function)):
        return True
    cls = project.class_of(dataset, function)
    making = [*(cls.methods.values() if cls is not None else ()), *_collating(call, function, project)]
    return any(moves_to(one) == "device" for each in making for one in each.calls)


def _made_of(dataset: ast.expr, function: Function) -> Iterator[ast.AST]:
    """The dataset as it is made here: `TensorDataset(x.to(device))`, in one or two lines."""
    yield from ast.walk(dataset)
    made = function.bindings.get(dataset.id, ()) if isinstance(dataset, ast.Name) else ()
    for one in made if len(made) == 1 else ():
        yield from ast.walk(one)


def _collating(call: ast.Call, function: Function, project: Project) -> list[Function]:
    """The function that puts its batches together, where it is one of the project's."""
    given = argument(call, "collate_fn", 6)
    meant = project.lookup(given.id, function) if isinstance(given, ast.Name) else None
    return [meant] if isinstance(meant, Function) else []


# In memory.


def _in_memory(node: ast.expr, function: Function, project: Project, depth: int) -> bool:
    if depth > _DEEPEST:
        return False
    if isinstance(node, ast.Call):
        return _is_made_in_memory(node, function, project, depth)
    if isinstance(node, ast.List | ast.ListComp | ast.Tuple):
        return True
    if isinstance(node, ast.Name):
        known = _named_in_memory(node.id, function, project, depth)
        if known is not None:
            return known
    return _hands_out(node, function, project)


def _is_made_in_memory(call: ast.Call, function: Function, project: Project, depth: int) -> bool:
    name = called_name(call)
    if name in _IN_MEMORY or (
        name not in _MAY_LIE_ELSEWHERE and dotted(call.func) in (f"{of}.{name}" for of in _ARRAYS)
    ):
        return True
    if name in _WRAPPERS and call.args:
        of = call.args[0]
        several = (
            of.elts if isinstance(of, ast.List | ast.Tuple) else [of.elt] if isinstance(of, ast.ListComp) else [of]
        )
        return bool(several) and all(_in_memory(one, function, project, depth + 1) for one in several)
    made = project.resolve(call, function)
    if len(made) == 1 and made[0].name != "__init__":
        returned = [one.value for one in own_nodes(made[0]) if isinstance(one, ast.Return)]
        # Of several that are returned together it cannot be told which this is.
        return bool(returned) and all(
            one is not None and not isinstance(one, ast.Tuple) and _in_memory(one, made[0], project, depth + 1)
            for one in returned
        )
    return _hands_out(call, function, project)


def _named_in_memory(name: str, function: Function, project: Project, depth: int) -> bool | None:
    """None: nothing here says where it is."""
    inside: Function | None = function
    while inside is not None:
        values, plain = inside.bindings.get(name, []), inside.definition
        given = plain is not None and name in parameters(plain)
        if values or given:
            in_memory = not given or _is_noted_in_memory(name, inside)
            return in_memory and all(_in_memory(one, inside, project, depth + 1) for one in values)
        inside = inside.parent
    body = function.module.body
    if values := body.bindings.get(name, []):
        return all(_in_memory(one, body, project, depth + 1) for one in values)
    return None


def _is_noted_in_memory(name: str, function: Function) -> bool:
    """`samples: list[Tensor]`, `x: np.ndarray`."""
    plain = function.definition
    given = (*plain.args.posonlyargs, *plain.args.args, *plain.args.kwonlyargs) if plain is not None else ()
    noted = next((one.annotation for one in given if one.arg == name), None)
    return noted is not None and bool(_OF_ARRAYS.search(ast.unparse(noted).split("[")[0]))


def _hands_out(node: ast.expr, function: Function, project: Project) -> bool:
    """Without a single call there is no reading, decoding or transforming."""
    cls = project.class_of(node, function)
    makes = project.methods(cls, "__getitem__") if cls is not None else []
    return bool(makes) and not any(isinstance(one, ast.Call) for one in own_nodes(makes[0]))


# For training.


def _is_named_for_training(call: ast.Call, function: Function) -> bool:
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
    return not any(is_evaluation(name) or _DEV.search(name) for name in names)


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


def _evaluates(call: ast.Call, function: Function) -> bool:
    """By its uses: all that is done with it is to go over it without gradients, or to hand it to an evaluation."""
    name = next((name for name, values in function.bindings.items() if values == [call] and "." not in name), None)
    if name is None or function.definition is None:
        return False
    without_gradients = {
        id(one)
        for block in own_nodes(function)
        if isinstance(block, ast.With | ast.AsyncWith)
        and any(dotted(callable_of(item.context_expr)).split(".")[-1] in _NO_GRADIENTS for item in block.items)
        for one in within(block)
    }
    all_of_it = any(
        dotted(callable_of(one)).split(".")[-1] in _NO_GRADIENTS for one in function.definition.decorator_list
    )
    served = [
        *(
            all_of_it or id(node) in without_gradients
            for node in own_nodes(function)
            if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) and name in names_in(node.iter)
        ),
        *(
            is_evaluation(called_name(one))
            for one in function.calls
            if any(isinstance(given, ast.Name) and given.id == name for given in one.args)
            and called_name(one) not in _LOOKING
        ),
        # What it is given to beyond these is out of sight.
        *(
            False
            for node in own_nodes(function)
            if isinstance(node, ast.Return | ast.Yield) and node.value is not None and _hands_back(name, node.value)
        ),
    ]
    return bool(served) and all(served)


def _hands_back(name: str, value: ast.expr) -> bool:
    several = (
        value.elts if isinstance(value, ast.Tuple | ast.List) else value.values if isinstance(value, ast.Dict) else ()
    )
    return any(isinstance(one, ast.Name) and one.id == name for one in (value, *several))


_NO_GRADIENTS = {"no_grad", "inference_mode"}
# Functions of the language that only look at it, or go over it with a loop that is seen.
_LOOKING = {"len", "enumerate", "tqdm", "iter", "zip", "track", "trange", "print"}
