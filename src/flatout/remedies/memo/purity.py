"""Does a function only compute? Read from its source, with all functions of the user's that it calls.

It may write into what it has made itself, and into nothing else. It may call what is known to be pure and functions of
the user's that pass the same test. What it reads besides its arguments is listed: attributes of `self` and globals,
which have to be the same for its result to be the same. Whatever is not understood counts as impure.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from ...feed.reasons import Reasoned
from ...records.message import Message, message
from .known_names import (
    ATTRIBUTES_REFUSED,
    CHANGES_CONTAINER,
    CHANGES_TENSOR,
    DRAWS,
    KEYWORDS_REFUSED,
    MAKES_CONTAINER,
    MAKES_NUMBER,
    MAKES_TENSOR,
    MAKES_TENSOR_AS_METHOD,
    METHODS,
    MODULES_OF_PRODUCTS,
    PRODUCTS,
)

_MOST_FUNCTIONS = 20
NamePath = tuple[str, ...]
_NEVER: dict[type[ast.AST], Message] = {
    ast.Global: message("memo.writes_global"),
    ast.Nonlocal: message("memo.writes_nonlocal"),
    ast.Yield: message("memo.is_generator"),
    ast.YieldFrom: message("memo.is_generator"),
    ast.Await: message("memo.awaits"),
    ast.AsyncFor: message("memo.awaits"),
    ast.AsyncWith: message("memo.awaits"),
    ast.FunctionDef: message("memo.defines_function"),
    ast.AsyncFunctionDef: message("memo.defines_function"),
    ast.ClassDef: message("memo.defines_class"),
    ast.Lambda: message("memo.defines_function"),
    ast.Import: message("memo.imports"),
    ast.ImportFrom: message("memo.imports"),
    ast.Match: message("memo.matches"),
}
_DECORATORS = ("torch.no_grad", "torch.inference_mode", "builtins.property", "builtins.staticmethod")


class Impure(Reasoned):
    """It does more than compute, or may do so: the words say what."""


class Names(Protocol):
    """What the names in one function stand for."""

    def origin(self, path: NamePath) -> str | None:
        """The full name of a library's or builtin function, such as "torch.zeros"."""

    def called(self, path: NamePath, arguments: int) -> Body | None:
        """A function of the user's; None for one that is known to be pure. Raises Impure."""

    def method(self, name: str) -> Body:
        """Of the object that `self` is. Raises Impure."""


@dataclass(frozen=True, slots=True)
class Body:
    """A function as it is written. `takes_self` where its first parameter is the object it belongs to."""

    node: ast.FunctionDef
    names: Names
    takes_self: bool
    # Tells functions of the same name apart.
    file: str = ""

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def place(self) -> tuple[str, str, int]:
        return self.file, self.node.name, self.node.lineno


@dataclass(slots=True)
class Reads:
    """What a function's result hangs on besides its arguments."""

    of_self: set[NamePath] = field(default_factory=set)
    of_names: list[tuple[Names, NamePath]] = field(default_factory=list)
    # Functions and methods of the user's that were looked into: they have to stay the same ones.
    of_functions: list[tuple[Names, NamePath]] = field(default_factory=list)
    of_methods: set[str] = field(default_factory=set)
    # Of whatever object: a property by one of these names is run.
    attributes: set[str] = field(default_factory=set)
    functions: list[str] = field(default_factory=list)
    # Whether it multiplies matrices, convolves or the like, so that settings of those matter to it.
    has_products: bool = False


def reads_of(body: Body) -> Reads:
    """Raises Impure."""
    reads = Reads()
    waiting, seen = [body], {body.place}
    while waiting:
        function = waiting.pop()
        reads.functions.append(function.name)
        if len(reads.functions) > _MOST_FUNCTIONS:
            raise Impure(message("memo.too_many_functions", most=_MOST_FUNCTIONS))
        for called in _Walk(function, reads).calls:
            if called.place not in seen:
                seen.add(called.place)
                waiting.append(called)
    return reads


class _Walk(ast.NodeVisitor):
    """One function."""

    def __init__(self, body: Body, reads: Reads) -> None:
        self._body = body
        self._reads = reads
        self.calls: list[Body] = []
        self._fresh = Freshness(body.node, body.names.origin)
        self._self = self._fresh.parameters[0] if body.takes_self and self._fresh.parameters else None
        # Names of the comprehensions around.
        self._inner: list[str] = []
        self._check_decorators()
        if self._self is not None and self._fresh.count(self._self) > 1:
            raise self._impure(message("memo.rebinds_self", name=self._self), body.node)
        for statement in body.node.body:
            self.visit(statement)

    def _check_decorators(self) -> None:
        for decorator in self._body.node.decorator_list:
            path = path_of(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if path is None or self._body.names.origin(path) not in _DECORATORS:
                raise self._impure(message("memo.decorated", decorator=ast.unparse(decorator)), decorator)

    def _impure(self, why: Message, node: ast.AST) -> Impure:
        return Impure(message("memo.at_line", why=why, function=self._body.name, line=getattr(node, "lineno", "?")))

    def visit(self, node: ast.AST) -> None:
        why = _NEVER.get(type(node))
        if why:
            raise self._impure(why, node)
        super().visit(node)

    # Writing

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._write(target)
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._write(node.target)
        if node.value is not None:
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and self._kind(node.target) is None:
            raise self._impure(message("memo.changes_in_place", name=node.target.id), node)
        if isinstance(node.target, ast.Subscript) and self._kind(node.target.value) != TENSOR:
            # What lies in a list of its own need not be its own.
            raise self._impure(message("memo.changes_item", code=ast.unparse(node.target)), node)
        self._write(node.target)
        self.visit(node.op)
        self.visit(node.value)

    def visit_For(self, node: ast.For) -> None:
        self._write(node.target)
        for part in (node.iter, *node.body, *node.orelse):
            self.visit(part)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            call = item.context_expr
            path = path_of(call.func) if isinstance(call, ast.Call) else None
            if path is None or self._body.names.origin(path) != "torch.no_grad" or item.optional_vars is not None:
                raise self._impure(message("memo.enters", code=ast.unparse(call)), node)
        for statement in node.body:
            self.visit(statement)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self._write(target)

    def _write(self, target: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for element in target.elts:
                self._write(element)
        elif isinstance(target, ast.Starred):
            self._write(target.value)
        elif isinstance(target, ast.Attribute):
            raise self._impure(message("memo.sets", code=ast.unparse(target)), target)
        elif isinstance(target, ast.Subscript):
            if self._kind(target.value) is None:
                raise self._impure(message("memo.writes_into", code=ast.unparse(target.value)), target)
            self.visit(target.value)
            self.visit(target.slice)

    # Comprehensions have names of their own.

    def _visit_comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        own = [
            name.id
            for part in node.generators
            for name in ast.walk(part.target)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
        ]
        # What it goes over first is still read outside.
        self.visit(node.generators[0].iter)
        self._inner += own
        for place, part in enumerate(node.generators):
            if place:
                self.visit(part.iter)
            for condition in part.ifs:
                self.visit(condition)
        for value in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.visit(value)
        del self._inner[len(self._inner) - len(own) :]

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

    # Reading

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            return
        if node.id == self._self:
            raise self._impure(message("memo.passes_self", name=node.id), node)
        if not self._is_local(node.id):
            self._read((node.id,))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = path_of(node)
        self._check_attribute(node)
        if path is not None and path[0] == self._self:
            self._reads.attributes.update(path[1:])
            self._reads.of_self.add(path[1:])
        elif path is not None and not self._is_local(path[0]):
            self._reads.attributes.update(path[1:])
            self._read(path)
        else:
            self._reads.attributes.add(node.attr)
            self.visit(node.value)

    def _check_attribute(self, node: ast.Attribute) -> None:
        if node.attr in ATTRIBUTES_REFUSED:
            raise self._impure(message("memo.reads_no_content", code=ast.unparse(node)), node)
        is_own = isinstance(node.value, ast.Name) and node.value.id == self._self
        if node.attr.startswith("__") or (node.attr.startswith("_") and not is_own):
            raise self._impure(message("memo.reads_private", code=ast.unparse(node)), node)

    def _kind(self, node: ast.expr) -> str | None:
        """Names of comprehensions may be those of locals as well, and are never fresh."""
        inner = any(isinstance(item, ast.Name) and item.id in self._inner for item in ast.walk(node))
        return None if inner else self._fresh.kind(node)

    def _is_local(self, name: str) -> bool:
        return name in self._inner or name in self._fresh.names

    def _read(self, path: NamePath) -> None:
        """A function that is handed to another will be called by that."""
        origin = self._body.names.origin(path)
        if origin is None:
            self._reads.of_names.append((self._body.names, path))
        else:
            self._body.names.called(path, 0)
            self._note(origin)

    def visit_MatMult(self, node: ast.MatMult) -> None:
        self._reads.has_products = True

    def _note(self, origin: str) -> None:
        is_product = origin.startswith(MODULES_OF_PRODUCTS) or origin.rpartition(".")[2] in PRODUCTS
        self._reads.has_products |= is_product

    # Calling

    def visit_Call(self, node: ast.Call) -> None:
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg in KEYWORDS_REFUSED:
                raise self._impure(
                    message("memo.calls_with", function=ast.unparse(node.func), argument=keyword.arg or "**"), node
                )
            self.visit(keyword.value)
        for argument in node.args:
            self.visit(argument)
        path = path_of(node.func)
        try:
            self._check_callee(node, path)
        except Impure as impure:
            raise self._impure(impure.why, node) from None

    def _check_callee(self, node: ast.Call, path: NamePath | None) -> None:
        if path is not None and path[0] == self._self and len(path) == 2:
            self.calls.append(self._body.names.method(path[1]))
            self._reads.of_methods.add(path[1])
        elif path is not None and path[0] != self._self and not self._is_local(path[0]):
            starred = any(isinstance(argument, ast.Starred) for argument in node.args)
            self._check_function(path, 99 if starred else len(node.args))
        elif isinstance(node.func, ast.Attribute):
            self._check_method(node.func)
        else:
            raise Impure(message("memo.calls_unknown", function=ast.unparse(node.func)))

    def _check_function(self, path: NamePath, arguments: int) -> None:
        body = self._body.names.called(path, arguments)
        self._note(self._body.names.origin(path) or "")
        if body is not None:
            self.calls.append(body)
            self._reads.of_functions.append((self._body.names, path))

    def _check_method(self, called: ast.Attribute) -> None:
        name, kind = called.attr, self._kind(called.value)
        is_of_fresh = (name in CHANGES_TENSOR and kind == TENSOR) or (name in CHANGES_CONTAINER and kind == CONTAINER)
        # Only what an operator made new has a method such as clamp_.
        is_of_fresh |= name in CHANGES_TENSOR and name.endswith("_") and kind == NEW
        if name not in METHODS and not is_of_fresh:
            changes = name in CHANGES_TENSOR or name in CHANGES_CONTAINER or name.endswith("_")
            if changes:
                where = ast.unparse(called.value)
                raise Impure(message("memo.calls_method_on", method=name, object=where, why=fault_of(name)))
            raise Impure(message("memo.calls_method", method=name, why=fault_of(name)))
        self._reads.attributes.add(name)
        self._note(name.removesuffix("_"))
        self.visit(called.value)


def fault_of(name: str) -> Message:
    """Why a function of this name is not taken."""
    return message("memo.fault_draws") if any(word in name for word in DRAWS) else message("memo.fault_unknown")


# Which local names hold memory that the function has allocated itself: it may write only into that. By the syntax,
# regardless of order: a name counts by all values it is ever given. A "tensor" is fresh with all its views, a
# "container" is, but not its items, and "new" is the result of an operator: a number, a tensor, a list.

TENSOR, CONTAINER, NEW = "tensor", "container", "new"
# Of a name whose values are still to be looked at: it holds nothing against the others.
_OPEN = "open"
_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp, ast.DictComp, ast.SetComp)

# The full name of a function by its dotted path: "torch.zeros", "builtins.int"; None where it is neither.
Origin = Callable[[tuple[str, ...]], str | None]


class Freshness:
    """Of the locals of one function."""

    def __init__(self, function: ast.FunctionDef, origin: Origin) -> None:
        self._origin = origin
        # None stands for a value that is not known.
        self._values: dict[str, list[ast.expr | None]] = {}
        arguments = function.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        self.parameters = tuple(item.arg for item in every if item is not None)
        for name in self.parameters:
            self._bind_name(name, None)
        for statement in function.body:
            for node in _outside_comprehensions(statement):
                self._bind_from(node)
        self._kinds: dict[str, str | None] = dict.fromkeys(self._values, _OPEN)
        while self._settle():
            pass
        # What is made of nothing but itself is never there.
        self._kinds = {name: None if kind == _OPEN else kind for name, kind in self._kinds.items()}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._values)

    def count(self, name: str) -> int:
        """How often a local name is given a value; a parameter once to begin with."""
        return len(self._values.get(name, ()))

    def kind(self, node: ast.expr) -> str | None:
        """What an expression's value is; None where it may be somebody else's memory."""
        if isinstance(node, ast.Name):
            return self._kinds.get(node.id)
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp | ast.Compare):
            return NEW
        if isinstance(node, ast.UnaryOp):
            return None if isinstance(node.op, ast.UAdd) else NEW  # +x may be x itself
        if isinstance(node, _DISPLAYS):
            return CONTAINER
        if isinstance(node, ast.Call):
            return self._kind_of_call(node)
        if isinstance(node, ast.Subscript | ast.Attribute):
            return self._part_of(node.value)
        if isinstance(node, ast.IfExp):
            return _either(self.kind(node.body), self.kind(node.orelse))
        return None

    def _settle(self) -> bool:
        """One more look at all names; whether one of them turned out to be less than was thought."""
        before = dict(self._kinds)
        for name, values in self._values.items():
            found: str | None = _OPEN
            for value in values:
                found = _either(found, self.kind(value) if value is not None else None)
            self._kinds[name] = found
        return before != self._kinds

    def _part_of(self, whole: ast.expr) -> str | None:
        kind = self.kind(whole)
        return kind if kind in (TENSOR, _OPEN) else None

    def _kind_of_call(self, node: ast.Call) -> str | None:
        path = path_of(node.func)
        if path is not None and path[0] not in self._values:
            module, _, name = (self._origin(path) or "").rpartition(".")
            if module == "builtins":
                return CONTAINER if name in MAKES_CONTAINER else NEW if name in MAKES_NUMBER else None
            return TENSOR if module in ("torch", "numpy") and name in MAKES_TENSOR else None
        if not isinstance(node.func, ast.Attribute):
            return None
        if node.func.attr in MAKES_TENSOR_AS_METHOD:
            return TENSOR
        # A view of fresh memory, or memory of its own.
        return self._part_of(node.func.value) if node.func.attr in METHODS else None

    def _bind_from(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value)
        elif isinstance(node, ast.NamedExpr) or (isinstance(node, ast.AnnAssign) and node.value is not None):
            self._bind(node.target, node.value)
        elif isinstance(node, ast.For):
            # A turn of `range` is a number.
            self._bind(node.target, ast.Constant(0) if self._is_range(node.iter) else None)
        elif isinstance(node, ast.With):
            for item in node.items:
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, None)
        elif isinstance(node, ast.ExceptHandler) and node.name is not None:
            self._bind_name(node.name, None)

    def _bind(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self._bind_name(target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            values: Iterable[ast.expr | None] = [None] * len(target.elts)
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                values = value.elts
            for element, its in zip(target.elts, values, strict=True):
                self._bind(element, its)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, None)

    def _bind_name(self, name: str, value: ast.expr | None) -> None:
        self._values.setdefault(name, []).append(value)

    def _is_range(self, node: ast.expr) -> bool:
        path = path_of(node.func) if isinstance(node, ast.Call) else None
        return path is not None and self._origin(path) == "builtins.range"


def path_of(node: ast.expr) -> tuple[str, ...] | None:
    """`a.b.c` as its names; None for what is no plain chain of them."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return (node.id, *names) if isinstance(node, ast.Name) else None


def _either(kind: str | None, other: str | None) -> str | None:
    """What is sure of a value that may be either."""
    if _OPEN in (kind, other):
        return other if kind == _OPEN else kind
    if kind == other:
        return kind
    return None if kind is None or other is None else NEW


def _outside_comprehensions(node: ast.AST) -> Iterator[ast.AST]:
    """The names of a comprehension are its own."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.comprehension) and child is node.target):
            yield from _outside_comprehensions(child)
