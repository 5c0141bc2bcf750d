"""Does a function only compute? Read from its source, with all functions of the user's that it calls.

It may write into what it has made itself, and into nothing else. It may call what is known to be pure and functions of
the user's that pass the same test. What it reads besides its arguments is listed: attributes of `self` and globals,
which have to be the same for its result to be the same. Whatever is not understood counts as impure.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Protocol

from .freshness import CONTAINER, NEW, TENSOR, Freshness, path_of
from .known_names import (
    ATTRIBUTES_REFUSED,
    CHANGES_CONTAINER,
    CHANGES_TENSOR,
    DRAWS,
    KEYWORDS_REFUSED,
    METHODS,
    MODULES_OF_PRODUCTS,
    PRODUCTS,
)

_MOST_FUNCTIONS = 20
Path = tuple[str, ...]
_NEVER: dict[type[ast.AST], str] = {
    ast.Global: "it writes a global name",
    ast.Nonlocal: "it writes a name of the function around it",
    ast.Yield: "it is a generator",
    ast.YieldFrom: "it is a generator",
    ast.Await: "it waits for something",
    ast.AsyncFor: "it waits for something",
    ast.AsyncWith: "it waits for something",
    ast.FunctionDef: "it defines a function",
    ast.AsyncFunctionDef: "it defines a function",
    ast.ClassDef: "it defines a class",
    ast.Lambda: "it defines a function",
    ast.Import: "it imports something",
    ast.ImportFrom: "it imports something",
    ast.Match: "it matches patterns, which is not looked into",
}
_DECORATORS = ("torch.no_grad", "torch.inference_mode", "builtins.property", "builtins.staticmethod")


class Impure(Exception):
    """It does more than compute, or may do so: the words say what."""


class Names(Protocol):
    """What the names in one function stand for."""

    def origin(self, path: Path) -> str | None:
        """The full name of a library's or builtin function, such as "torch.zeros"."""

    def called(self, path: Path, arguments: int) -> Body | None:
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

    of_self: set[Path] = field(default_factory=set)
    of_names: list[tuple[Names, Path]] = field(default_factory=list)
    # Functions and methods of the user's that were looked into: they have to stay the same ones.
    of_functions: list[tuple[Names, Path]] = field(default_factory=list)
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
        one = waiting.pop()
        reads.functions.append(one.name)
        if len(reads.functions) > _MOST_FUNCTIONS:
            raise Impure(f"it calls more than {_MOST_FUNCTIONS} functions of yours")
        walk = _Walk(one, reads)
        for other in walk.calls:
            if other.place not in seen:
                seen.add(other.place)
                waiting.append(other)
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
            raise self._impure(f"it gives {self._self} another value", body.node)
        for statement in body.node.body:
            self.visit(statement)

    def _check_decorators(self) -> None:
        for one in self._body.node.decorator_list:
            path = path_of(one.func if isinstance(one, ast.Call) else one)
            if path is None or self._body.names.origin(path) not in _DECORATORS:
                raise self._impure(f"@{ast.unparse(one)} may do more", one)

    def _impure(self, why: str, node: ast.AST) -> Impure:
        return Impure(f"{why} ({self._body.name}, line {getattr(node, 'lineno', '?')})")

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
            raise self._impure(f"it changes {node.target.id} in place, which it may not have made itself", node)
        if isinstance(node.target, ast.Subscript) and self._kind(node.target.value) != TENSOR:
            # What lies in a list of its own need not be its own.
            raise self._impure(f"it changes {ast.unparse(node.target)} in place, which it may not have made", node)
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
                raise self._impure(f"it enters {ast.unparse(call)}", node)
        for statement in node.body:
            self.visit(statement)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self._write(target)

    def _write(self, target: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                self._write(one)
        elif isinstance(target, ast.Starred):
            self._write(target.value)
        elif isinstance(target, ast.Attribute):
            raise self._impure(f"it sets {ast.unparse(target)}", target)
        elif isinstance(target, ast.Subscript):
            if self._kind(target.value) is None:
                raise self._impure(f"it writes into {ast.unparse(target.value)}, which it has not made itself", target)
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
            raise self._impure(f"it hands {node.id} on as a whole", node)
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
            raise self._impure(f"it reads {ast.unparse(node)}, which is no content", node)
        is_own = isinstance(node.value, ast.Name) and node.value.id == self._self
        if node.attr.startswith("__") or (node.attr.startswith("_") and not is_own):
            raise self._impure(f"it reads {ast.unparse(node)}, which is private", node)

    def _kind(self, node: ast.expr) -> str | None:
        """Names of comprehensions may be those of locals as well, and are never fresh."""
        inner = any(isinstance(one, ast.Name) and one.id in self._inner for one in ast.walk(node))
        return None if inner else self._fresh.kind(node)

    def _is_local(self, name: str) -> bool:
        return name in self._inner or name in self._fresh.names

    def _read(self, path: Path) -> None:
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
                raise self._impure(f"it calls {ast.unparse(node.func)} with {keyword.arg or '**'}", node)
            self.visit(keyword.value)
        for argument in node.args:
            self.visit(argument)
        path = path_of(node.func)
        try:
            self._check_callee(node, path)
        except Impure as impure:
            raise self._impure(str(impure), node) from None

    def _check_callee(self, node: ast.Call, path: Path | None) -> None:
        if path is not None and path[0] == self._self and len(path) == 2:
            self.calls.append(self._body.names.method(path[1]))
            self._reads.of_methods.add(path[1])
        elif path is not None and path[0] != self._self and not self._is_local(path[0]):
            starred = any(isinstance(one, ast.Starred) for one in node.args)
            self._check_function(path, 99 if starred else len(node.args))
        elif isinstance(node.func, ast.Attribute):
            self._check_method(node.func)
        else:
            raise Impure(f"it calls {ast.unparse(node.func)}, and what that is cannot be told")

    def _check_function(self, path: Path, arguments: int) -> None:
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
            where = f" on {ast.unparse(called.value)}" if changes else ""
            raise Impure(f"it calls .{name}(){where}, which {fault_of(name)}")
        self._reads.attributes.add(name)
        self._note(name.removesuffix("_"))
        self.visit(called.value)


def fault_of(name: str) -> str:
    """Why a function of this name is not taken."""
    return "draws random numbers" if any(word in name for word in DRAWS) else "is not known to be pure"
