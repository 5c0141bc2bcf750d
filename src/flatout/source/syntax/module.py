"""A Python file: its functions, classes, imports, comments that silence findings, and the places of its nodes.

It is parsed when first asked for.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from flatout.records.source import Place
from flatout.source.syntax.nodes import (
    DEFINITIONS,
    Def,
    bound_names,
    called_name,
    children,
    decorator_names,
    dotted_name,
    parameters,
    unpacked,
    walk_scope,
)
from flatout.source.syntax.notebook import Cells

_FROM = re.compile(r"^[ \t]*from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)", re.M)
_IMPORT = re.compile(r"^[ \t]*import[ \t]+([^\n#;]+)", re.M)
_WORD = re.compile(r"\w+")
_ASSIGNING = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.With, ast.AsyncWith)


@dataclass(eq=False, slots=True)
class Function:
    """A function, or the module's own body (then `node` is the module)."""

    module: Module
    node: Def | ast.Module
    name: str
    owner: Class | None = None
    parent: Function | None = None
    # Functions defined inside it, by name.
    inner: dict[str, Function] = field(default_factory=dict)
    # Calls and assignments of its own body, not of inner functions; the calls in the order of the text.
    calls: list[ast.Call] = field(default_factory=list)
    _assigned: list[ast.AST] = field(default_factory=list)
    _bindings: dict[str, list[ast.expr]] | None = None

    @property
    def definition(self) -> Def | None:
        return None if isinstance(self.node, ast.Module) else self.node

    @property
    def qualified(self) -> str:
        return f"{self.owner.name}.{self.name}" if self.owner is not None else self.name

    @property
    def is_method(self) -> bool:
        plain = self.definition
        return (
            self.owner is not None
            and self.parent is None
            and plain is not None
            and "staticmethod" not in decorator_names(plain)
        )

    @property
    def parameters(self) -> list[str]:
        """Names of all parameters but `*args` and `**kwargs`; none for the module's body."""
        return [] if isinstance(self.node, ast.Module) else parameters(self.node)

    def arguments(self, call: ast.Call) -> dict[str, ast.expr]:
        """Which argument of a call goes to which parameter, as far as the call shows it."""
        names = self.parameters[1 if self.is_method or self.name == "__init__" else 0 :]
        given: dict[str, ast.expr] = {}
        for name, value in zip(names, call.args, strict=False):
            if isinstance(value, ast.Starred):
                break
            given[name] = value
        return given | {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}

    def scopes(self) -> Iterator[Function]:
        """Where its names may be bound: itself, the functions around it, the module's body."""
        scope: Function | None = self
        while scope is not None:
            yield scope
            scope = scope.parent
        if self.definition is not None:
            yield self.module.body

    def returned(self) -> list[ast.expr | None]:
        """What its own `return` statements give; None for a bare one."""
        return [node.value for node in own_nodes(self) if isinstance(node, ast.Return)]

    @property
    def bindings(self) -> dict[str, list[ast.expr]]:
        """Values assigned to names here: `x = …`, `self.x = …`. Names of a tuple all get the whole value."""
        if self._bindings is None:
            found: dict[str, list[ast.expr]] = defaultdict(list)
            for statement in sorted(self._assigned, key=lambda node: node.lineno):  # type: ignore[attr-defined]
                _bind(statement, found)
            self._bindings = dict(found)
        return self._bindings


@dataclass(eq=False, slots=True)
class Class:
    module: Module
    node: ast.ClassDef
    name: str
    bases: tuple[str, ...]
    methods: dict[str, Function] = field(default_factory=dict)

    def assigned(self, attribute: str) -> list[tuple[ast.expr, Function]]:
        """Values that methods give to `self.attribute`, each with its method."""
        name = f"self.{attribute}"
        return [(value, method) for method in self.methods.values() for value in method.bindings.get(name, ())]


@dataclass(frozen=True, slots=True)
class Import:
    """`from module import attribute as …`, or `import module as …` (no attribute)."""

    module: str
    attribute: str | None


class Module:
    """A file of the project by its dotted name."""

    def __init__(self, shown: str, name: str, text: str, cells: Cells | None = None) -> None:
        self.shown = shown
        self.name = name
        self.text = text
        self.cells = cells
        self.error: tuple[int, int, str] | None = None

    @cached_property
    def tree(self) -> ast.Module:
        """Empty where the text is not Python; `error` then says why."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings about the user's escapes
                return ast.parse(self.text)
        except SyntaxError as error:
            self.error = (error.lineno or 1, error.offset or 1, error.msg)
        except (ValueError, RecursionError, MemoryError) as error:
            self.error = (1, 1, f"cannot be parsed ({type(error).__name__})")
        return ast.Module([], [])

    def forget(self) -> None:
        """Frees the tree; it is parsed again when asked for."""
        self.__dict__.pop("tree", None)

    @cached_property
    def body(self) -> Function:
        """The module's own code, with its top-level functions as inner ones."""
        top = Function(self, self.tree, "<module>")
        self._functions = [top]
        self._classes: dict[str, Class] = {}
        self._collect(self.tree, top, None)
        self._functions[1:] = sorted(self._functions[1:], key=lambda function: function.node.lineno)  # type: ignore[union-attr]
        for function in self._functions:
            function.calls.sort(key=lambda call: (call.lineno, call.col_offset))
        return top

    @property
    def functions(self) -> list[Function]:
        """All functions of the file, its body first."""
        return [self.body, *self._functions[1:]]

    @property
    def classes(self) -> dict[str, Class]:
        assert self.body is not None  # which takes the file apart
        return self._classes

    def _collect(self, node: ast.AST, parent: Function, owner: Class | None) -> None:
        """Collects functions, classes, calls and imports in one walk over the file."""
        stack: list[tuple[ast.AST, Function, Class | None]] = [(node, parent, owner)]
        self._imports: list[ast.Import | ast.ImportFrom] = []
        while stack:
            here, inside, of = stack.pop()
            for child in children(here):
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    above = None if of is not None or inside.definition is None else inside
                    made = Function(self, child, child.name, of or inside.owner, above)
                    self._functions.append(made)
                    if of is not None:
                        of.methods.setdefault(child.name, made)
                    else:
                        inside.inner.setdefault(child.name, made)
                    stack.append((child, made, None))
                    continue
                if isinstance(child, ast.ClassDef):
                    bases = tuple(name for base in child.bases if (name := dotted_name(base)))
                    own = Class(self, child, child.name, bases)
                    self._classes.setdefault(child.name, own)
                    stack.append((child, inside, own))
                    continue
                if isinstance(child, ast.Call):
                    inside.calls.append(child)
                elif isinstance(child, _ASSIGNING) and of is None:
                    inside._assigned.append(child)
                elif isinstance(child, ast.Import | ast.ImportFrom):
                    self._imports.append(child)
                stack.append((child, inside, of))

    @cached_property
    def imports(self) -> dict[str, Import]:
        found: dict[str, Import] = {}
        assert self.body is not None  # which takes the file apart
        for node in self._imports:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.split(".")[0]
                    found[name] = Import(alias.name if alias.asname else name, None)
            else:
                base = self._absolute_name(node.level, node.module or "")
                for alias in node.names:
                    found[alias.asname or alias.name] = Import(base, alias.name)
        return found

    @cached_property
    def stars(self) -> list[str]:
        """Modules of `from … import *`."""
        assert self.body is not None  # which takes the file apart
        return [
            self._absolute_name(node.level, node.module or "")
            for node in self._imports
            if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
        ]

    def _absolute_name(self, level: int, module: str) -> str:
        if not level:
            return module
        parts = self.name.split(".")
        is_package = self.shown.replace("\\", "/").endswith("/__init__.py")
        kept = parts[: len(parts) - level + is_package]
        return ".".join([*kept, *([module] if module else [])])

    def library_of(self, name: str) -> str:
        """The package that a name, or what it begins with, is imported from; empty if it is not imported."""
        brought = self.imports.get(name.split(".")[0])
        return "" if brought is None else brought.module.split(".")[0]

    @cached_property
    def imported_names(self) -> list[str]:
        """Names of modules that it may import, by regular expressions: quicker than parsing."""
        found = []
        for module, names in _FROM.findall(self.text):
            plain = module.lstrip(".")
            base = self._absolute_name(len(module) - len(plain), plain)
            found.append(base)
            found += [f"{base}.{name}" for name in _WORD.findall(names)]
        for names in _IMPORT.findall(self.text):
            found += [part.split()[0] for part in names.split(",") if part.split()]
        return found

    @cached_property
    def calls(self) -> dict[str, list[tuple[ast.Call, Function]]]:
        """Calls by the last part of their name, each with the function it is in."""
        found: dict[str, list[tuple[ast.Call, Function]]] = defaultdict(list)
        for function in self.functions:
            for call in function.calls:
                found[called_name(call)].append((call, function))
        return dict(found)

    @cached_property
    def parents(self) -> dict[int, ast.AST]:
        """What each node of the tree is part of, by the node's id."""
        found: dict[int, ast.AST] = {}
        stack: list[ast.AST] = [self.tree]
        while stack:
            node = stack.pop()
            below = children(node)
            found.update(dict.fromkeys(map(id, below), node))
            stack += below
        return found

    def ancestors(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """What a node is part of, from inside out, each with the child that leads to the node."""
        while (parent := self.parents.get(id(node))) is not None:
            yield parent, node
            node = parent

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    def place(self, node: ast.AST) -> Place:
        """Where a node is: lines and columns from 1, cells in a notebook."""
        line, end = int(getattr(node, "lineno", 1)), int(getattr(node, "end_lineno", 0) or 0)
        first = self._column(line, int(getattr(node, "col_offset", 0)))
        last = self._column(end, int(getattr(node, "end_col_offset", 0) or 0)) if end else 0
        return self.at(line, first, end, last)

    def at(self, line: int, column: int = 1, end_line: int = 0, end_column: int = 0) -> Place:
        if self.cells is None:
            return Place(self.shown, line, column, end_line, end_column)
        cell, inside = self.cells.place(line)
        return Place(self.shown, inside, column, inside + max(0, end_line - line), end_column, cell)

    def _column(self, line: int, offset: int) -> int:
        """The column of a byte offset: the parser counts bytes, editors count characters."""
        if not 1 <= line <= len(self.lines):
            return 1
        return len(self.lines[line - 1].encode()[:offset].decode(errors="ignore")) + 1


@lru_cache(maxsize=64)
def parse_text(text: str, file: str = "") -> Module:
    """One file alone. It is kept: several problems ask, and a run that goes on is judged again and again."""
    return Module(file, "", text)


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """All nodes of a function's body but those of functions defined in it."""
    for statement in function.node.body:
        # What a class body runs itself runs once, where it stands.
        for part in statement.body if isinstance(statement, ast.ClassDef) else [statement]:
            if not isinstance(part, DEFINITIONS):
                yield from walk_scope(part)


def _bind(node: ast.AST, found: dict[str, list[ast.expr]]) -> None:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            for to, value in unpacked(target, node.value) or [(target, node.value)]:
                _bind_target(to, value, found)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        _bind_target(node.target, node.value, found)
    elif isinstance(node, ast.With | ast.AsyncWith):
        for item in node.items:
            if item.optional_vars is not None:
                _bind_target(item.optional_vars, item.context_expr, found)


def _bind_target(target: ast.expr, value: ast.expr, found: dict[str, list[ast.expr]]) -> None:
    if isinstance(target, ast.Attribute) and (name := dotted_name(target)):
        found[name].append(value)
    else:
        for name in bound_names(target):
            found[name].append(value)


# What a name means outside of its file, as the file's imports say.


def imported_name(node: ast.expr, module: Module) -> str:
    """`time.sleep` of `sleep` after `from time import sleep`, and of `t.sleep` after `import time as t`; else empty."""
    first, _, rest = dotted_name(node).partition(".")
    brought = module.imports.get(first)
    return "" if brought is None else ".".join(part for part in (brought.module, brought.attribute, rest) if part)


def full_name(node: ast.expr, module: Module) -> str:
    """The same; what is not imported as it is written."""
    return imported_name(node, module) or dotted_name(node)


# `# flatout: ignore[CODE]` comments: which findings they silence, and which of them silence nothing.

_COMMENT = re.compile(r"#\s*flatout:\s*ignore(?:\[(?P<codes>[^\]]*)\])?", re.I)


@dataclass(frozen=True, slots=True)
class Ignore:
    """One comment. No codes: it silences everything on its line."""

    line: int
    column: int
    codes: tuple[str, ...]
    text: str


def find_ignores(module: Module) -> list[Ignore]:
    """Comments only: the same words in a string mean nothing."""
    if "flatout:" not in module.text:
        return []
    return [found for line, column, text in _comments(module.text) for found in _read(line, column, text)]


def _read(line: int, column: int, text: str) -> Iterator[Ignore]:
    for match in _COMMENT.finditer(text):
        codes = tuple(code.strip().upper() for code in (match["codes"] or "").split(",") if code.strip())
        yield Ignore(line, column + match.start() + 1, codes, match[0])


def _comments(text: str) -> list[tuple[int, int, str]]:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return []
    return [(token.start[0], token.start[1], token.string) for token in tokens if token.type == tokenize.COMMENT]
