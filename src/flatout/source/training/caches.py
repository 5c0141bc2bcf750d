"""Caches that a dataset fills while it makes its samples. Each worker process has its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from flatout.source.flow.reachability import enclosing_tests
from flatout.source.flow.values import Values
from flatout.source.project.project import Project
from flatout.source.syntax.module import Function, own_nodes
from flatout.source.syntax.nodes import (
    argument,
    callable_of,
    called_name,
    dotted_name,
    is_call,
    last_name,
    names_in,
    receiver_of,
    targets_of,
)
from flatout.source.training.loaders import Dataset

_DICTS = {"dict", "OrderedDict", "defaultdict"}
_LIMITED = re.compile(r"^(LRU|LFU|TTL|FIFO|RR|TLRU)(Cache|Dict)?$|^BoundedDict$")
_KEEPING = {"lru_cache", "cache", "cached", "memoize"}
# Names of caches that hold something small, or handles to the samples.
_SMALL = re.compile(
    r"len|size|count|idx|index|indices|handle|file|env|offset|seen|shape|stat|class|vocab|lock|conn|time|err|fail|bad",
    re.I,
)
_HANDLES = {
    "open", "File", "memmap", "ZipFile", "TarFile", "Environment", "connect", "Reader", "VideoReader", "VideoCapture",
    "open_memmap", "Lock", "len", "int", "float", "str", "bool", "Thread", "set", "Random", "default_rng", "Group",
}  # fmt: skip
_READS = re.compile(r"open|load|read|decode|imread|from_file|parse|fetch|download|get_frame", re.I)
_LIMIT = re.compile(r"max|limit|capacity|budget|bytes|full|room|mem|_gb|_mb|quota|num_cached", re.I)
_INDEX = re.compile(r"^(i|j|n|idx|ids?|index|item|ind|key|sample_idx|sample_id)$")
_DROPS = {"popitem", "pop", "clear", "popleft"}


@dataclass(frozen=True, slots=True, eq=False)
class Cache:
    dataset: Dataset
    # Where it is filled.
    function: Function
    node: ast.AST
    name: str
    # It has a limit: it evicts entries, or takes no more when it is full.
    is_limited: bool
    throws_out: bool
    # Keys are the samples' own indices: no entry is read twice in an epoch.
    by_index: bool


def find_caches(datasets: Iterable[Dataset], values: Values) -> Iterator[Cache]:
    """At most one for each dataset: the first that making its samples fills."""
    seen: set[int] = set()
    for dataset in datasets:
        found = next(_find_in(dataset, values), None)
        if found is not None and id(found.node) not in seen:
            seen.add(id(found.node))
            yield found


def _find_in(dataset: Dataset, values: Values) -> Iterator[Cache]:
    yield from _find_wrapped(dataset)
    for function in dataset.functions:
        if not _outlives_sample(function, dataset, values.project):
            continue
        yield from _find_decorated(dataset, function)
        for node in own_nodes(function):
            for name, key, value in _stores(node):
                if not _is_cache(name, function, dataset) or not _is_a_sample(name, value, function):
                    continue
                if any(isinstance(part, ast.Attribute) and part.attr in ("device", "dtype") for part in ast.walk(key)):
                    continue  # one entry for each device, not samples
                tests = [test for test, expected in enclosing_tests(node, function) if expected]
                if any(_is_off(test, function, values) for test in tests):
                    continue
                throws_out = _throws_out(name, function)
                is_limited = throws_out or _is_made_limited(name, function) or _asks_for_room(name, tests)
                yield Cache(dataset, function, node, name, is_limited, throws_out, _is_index(key, function))


def _outlives_sample(function: Function, dataset: Dataset, project: Project) -> bool:
    """Is it a method of the dataset or of an object it keeps, not of one that is made for each sample?"""
    owner = function.owner
    if owner is None or owner is dataset.cls or project.is_a(dataset.cls, owner.name):
        return True
    own = [
        function
        for function in dataset.functions
        if function.owner is not None and project.is_a(dataset.cls, function.owner.name)
    ]
    family = {
        id(cls): cls for cls in (dataset.cls, *(function.owner for function in own if function.owner is not None))
    }
    return any(
        project.class_of(value, method) is owner
        for cls in family.values()
        for method in cls.methods.values()
        for name, values in method.bindings.items()
        if name.startswith("self.")
        for value in values
    )


def _stores(node: ast.AST) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """Container, key and value of `self.cache[key] = value` and `self.cache.setdefault(key, value)`."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple):
                same = isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(target.elts)
                values = node.value.elts if same else [node.value] * len(target.elts)  # type: ignore[attr-defined]
                pairs = list(zip(target.elts, values, strict=True))
            for to, value in pairs:
                if isinstance(to, ast.Subscript) and dotted_name(to.value) and not isinstance(to.slice, ast.Slice):
                    yield dotted_name(to.value), to.slice, value
    elif isinstance(node, ast.Call) and len(node.args) == 2 and (holder := receiver_of(node, {"setdefault"})):
        yield holder, node.args[0], node.args[1]


def _is_cache(name: str, function: Function, dataset: Dataset) -> bool:
    """Does it start empty, and is it looked up before a value is made?"""
    made = _made(name, function)
    if not made or not all(_starts_empty(value) for value in made):
        return False
    # Functions that may use the same attribute.
    own = list(function.owner.methods.values()) if function.owner is not None else []
    own += [other for other in dataset.functions if other.owner is function.owner and other not in own]
    return any(_looks_up(node, name, user) for user in own for node in own_nodes(user))


def _made(name: str, function: Function) -> list[ast.expr]:
    first, _, attribute = name.partition(".")
    if first in ("self", "cls") and attribute and function.owner is not None:
        # In a method, or in the class body: `cache = {}`.
        found = [value for value, _ in function.owner.assigned(attribute)]
        body = [node for node in function.owner.node.body if isinstance(node, ast.Assign | ast.AnnAssign)]
        return found or [
            node.value
            for node in body
            for target in targets_of(node)
            if node.value is not None and dotted_name(target) == attribute
        ]
    if "." in name or name in function.bindings or name in function.parameters:
        return []
    return function.module.body.bindings.get(name, [])


def _starts_empty(node: ast.expr) -> bool:
    """`{}`, `OrderedDict()`, `[None] * n`; not a dict shared by a manager, an array or a file."""
    if isinstance(node, ast.Constant):
        return node.value is None  # set by the first use in a worker
    if isinstance(node, ast.Dict):
        return not node.keys
    if isinstance(node, ast.IfExp):
        return _starts_empty(node.body) and _starts_empty(node.orelse)
    if isinstance(node, ast.Call):
        name = called_name(node)
        # `Manager().dict()` is shared by all processes.
        is_own = name in _DICTS and (name != "dict" or isinstance(node.func, ast.Name))
        return is_own or bool(_LIMITED.search(name))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        node = node.left
        return isinstance(node, ast.List) and all(isinstance(o, ast.Constant) and o.value is None for o in node.elts)
    return isinstance(node, ast.ListComp) and isinstance(node.elt, ast.Constant) and node.elt.value is None


def _looks_up(node: ast.AST, name: str, function: Function) -> bool:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        right = node.comparators[0]
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            keys = is_call(right, "keys")
            return dotted_name(right.func.value if keys else right) == name  # type: ignore[attr-defined]
        if isinstance(node.ops[0], ast.Is | ast.IsNot) and isinstance(right, ast.Constant) and right.value is None:
            bound = function.bindings.get(node.left.id, []) if isinstance(node.left, ast.Name) else []
            return any(isinstance(v, ast.Subscript) and dotted_name(v.value) == name for v in (node.left, *bound))
    if receiver_of(node, {"get", "setdefault"}) == name:
        return True
    return isinstance(node, ast.ExceptHandler) and node.type is not None and dotted_name(node.type) == "KeyError"


def _is_a_sample(name: str, value: ast.expr, function: Function) -> bool:
    if _SMALL.search(name.split(".")[-1]) or isinstance(value, ast.Constant | ast.Compare | ast.JoinedStr):
        return False
    made = [value, *(function.bindings.get(value.id, ()) if isinstance(value, ast.Name) else ())]
    for candidate in made:
        if (
            isinstance(candidate, ast.Constant | ast.Compare | ast.JoinedStr)
            and candidate is not value
            and len(made) == 2
        ):
            return False
        if isinstance(candidate, ast.Call):
            is_image = dotted_name(candidate.func).startswith("Image.")
            if (called_name(candidate) in _HANDLES and not is_image) or argument(candidate, "mmap_mode") is not None:
                return False
    return True


# Caching decorators.


def _find_decorated(dataset: Dataset, function: Function) -> Iterator[Cache]:
    plain = function.definition
    if plain is None or len(function.parameters) < (2 if function.is_method else 1):
        return
    if not any(isinstance(call, ast.Call) and _READS.search(called_name(call)) for call in own_nodes(function)):
        return
    for decorator in plain.decorator_list:
        if last_name(callable_of(decorator)) in _KEEPING:
            is_limited = _has_size(decorator)
            keys = function.parameters[1 if function.is_method else 0 :]
            by_index = len(keys) == 1 and bool(_INDEX.search(keys[0]))
            yield Cache(dataset, function, decorator, f"{function.name}()", is_limited, is_limited, by_index)


def _find_wrapped(dataset: Dataset) -> Iterator[Cache]:
    """`self.opened = lru_cache(maxsize=8)(self.open)`, called for each sample."""
    asked = {dotted_name(call.func) for function in dataset.functions for call in function.calls}
    for method in dataset.cls.methods.values():
        for name, values in method.bindings.items():
            for value in values if name.startswith("self.") and name in asked else ():
                keeps = value.func if isinstance(value, ast.Call) else None
                if keeps is not None and last_name(callable_of(keeps)) in _KEEPING:
                    is_limited = _has_size(keeps)
                    yield Cache(dataset, method, value, f"{name}()", is_limited, is_limited, False)


def _has_size(decorator: ast.expr) -> bool:
    """`lru_cache` keeps 128 entries by default, `cache` all."""
    if last_name(callable_of(decorator)) != "lru_cache":
        return False
    given = argument(decorator, "maxsize", 0) if isinstance(decorator, ast.Call) else None
    return not (isinstance(given, ast.Constant) and given.value is None)


# Limits.


def _throws_out(name: str, function: Function) -> bool:
    own = function.owner.methods.values() if function.owner is not None else function.module.functions
    for node in (node for method in own for node in own_nodes(method)):
        if receiver_of(node, _DROPS) == name:
            return True
        targets = node.targets if isinstance(node, ast.Delete) else []
        if any(isinstance(target, ast.Subscript) and dotted_name(target.value) == name for target in targets):
            return True
    return _is_made_limited(name, function)


def _is_made_limited(name: str, function: Function) -> bool:
    return any(isinstance(call, ast.Call) and _LIMITED.search(called_name(call)) for call in _made(name, function))


def _asks_for_room(name: str, tests: list[ast.expr]) -> bool:
    """Is it filled only while it is small enough: `if len(self.cache) < self.most`, `if self.has_room()`?"""
    texts = [ast.unparse(test) for test in tests]
    return any(f"len({name})" in text or _LIMIT.search(text) for text in texts)


def _is_off(test: ast.expr, function: Function, values: Values) -> bool:
    """Is a test known to fail, so that the cache is never filled?"""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_is_off(operand, function, values) for operand in test.values)
    if isinstance(test, ast.Name | ast.Attribute):
        known = values.of(test, function)
        return known is not None and not known.value and not isinstance(known.value, dict | list)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        left, right = values.of(test.left, function), values.of(test.comparators[0], function)
        return left is not None and right is not None and left.value != right.value
    return False


def _is_index(key: ast.expr, function: Function) -> bool:
    return (
        isinstance(key, ast.Name)
        and bool(_INDEX.search(key.id))
        and key.id in function.parameters
        and key.id not in function.bindings
    ) or (isinstance(key, ast.Subscript) and bool({n for n in names_in(key.slice) if _INDEX.search(n)}))
