"""All files of one check, and which function, class or module a name or a call in them means."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from flatout.source.syntax import files
from flatout.source.syntax.config_files import Reader
from flatout.source.syntax.module import Class, Function, Module
from flatout.source.syntax.nodes import MAX_HOPS, called_name, dotted_name, is_call, parameter_annotation

# Possessive, and anchored at a line's end: they run over the text of every file.
_DEFINED = re.compile(r"\n[ \t]*+(?:async[ \t]++)?(?:def|class)[ \t]++(\w++)")
_CALLED = re.compile(r"\w+\Z")
_LONGEST_NAME = 60
# Methods that many classes have: the name does not tell whose it is.
_COMMON = {
    "step", "backward", "forward", "to", "train", "eval", "update", "zero_grad", "item", "cpu", "append", "write",
    "log", "save", "load", "close", "get", "add", "keys", "items", "values", "parameters", "state_dict",
    "load_state_dict", "reset", "run", "main", "print", "format", "join", "split", "copy", "clear", "pop",
    "insert", "extend", "sort", "index", "count", "mean", "sum", "start", "stop", "read", "open", "call", "apply",
    "fit", "predict", "sample", "build", "setup", "register", "info", "debug", "warning", "error", "size", "view",
    "reshape", "numpy", "detach", "clone", "cuda", "float", "int", "long", "half", "numel", "dim", "type",
}  # fmt: skip
# Wrappers that return, or behave like, the module they are given.
_WRAPPERS = {
    "DataParallel", "DistributedDataParallel", "DDP", "FSDP", "FullyShardedDataParallel", "compile", "prepare",
    "convert_sync_batchnorm", "script", "setup", "setup_module", "DataParallelModel",
}  # fmt: skip
_SAME = {"to", "cuda", "train", "eval", "float", "half", "double", "bfloat16", "requires_grad_", "type"}
_MOST_OVERRIDES = 8
_MOST_CALLERS = 10


# Workers that a fix gives a loader: few enough for any machine that trains, and most of the gain where samples take
# long. Where a search has measured the best number, that is used instead.
MODEST_WORKERS = 4


@dataclass(frozen=True, slots=True)
class Binding:
    """The scope that binds a name, and the values assigned there; callers may hand others to a parameter."""

    function: Function
    values: tuple[ast.expr, ...]
    is_parameter: bool


class Project:
    """Files of one check. `configs` are the YAML, JSON and TOML files among them."""

    def __init__(
        self,
        modules: Sequence[Module],
        configs: Sequence[str] = (),
        read: Reader = files.read_config,
        trouble: Sequence[str] = (),
        workers: int = MODEST_WORKERS,
    ) -> None:
        self.workers = workers
        self.modules = tuple(modules)
        self.configs = tuple(configs)
        self.read = read
        self.trouble = tuple(trouble)
        self._mentioning: dict[str, tuple[Module, ...]] = {}
        self._classes: dict[tuple[int, int], Class | None] = {}

    @cached_property
    def _by_name(self) -> dict[str, Module | None]:
        """Modules by every ending of their dotted name; None where two share it."""
        found: dict[str, Module | None] = {}
        for module in self.modules:
            parts = module.name.split(".")
            for at in range(len(parts)):
                ending = ".".join(parts[at:])
                # The whole name counts more than an ending.
                if at == 0 or ending not in found:
                    found[ending] = module
                elif found[ending] is not module and (known := found[ending]) is not None and known.name != ending:
                    found[ending] = None
        return found

    @cached_property
    def _modules_by_definition(self) -> dict[str, list[Module]]:
        """Which modules define a function or class of this name."""
        found: dict[str, list[Module]] = defaultdict(list)
        for module in self.modules:
            for name in set(_DEFINED.findall("\n" + module.text)):
                found[name].append(module)
        return found

    def module_named(self, name: str) -> Module | None:
        return self._by_name.get(name) if name else None

    def module_from(self, name: str, module: Module) -> Module | None:
        """The module that an import in a file means: of several by that name, the one in its folder."""
        return self.module_named(name) or self.module_named(f"{module.name.rpartition('.')[0]}.{name}" if name else "")

    def mentioning(self, word: str) -> tuple[Module, ...]:
        """Modules whose text has this word."""
        if word not in self._mentioning:
            pattern = re.compile(rf"\b{re.escape(word)}\b")
            self._mentioning[word] = tuple(m for m in self.modules if word in m.text and pattern.search(m.text))
        return self._mentioning[word]

    @cached_property
    def _modules_by_call(self) -> dict[str, list[Module]]:
        """Modules by the names that their text calls."""
        found: dict[str, list[Module]] = defaultdict(list)
        for module in self.modules:
            # Takes a third of the time of a regular expression over the whole text.
            before = {part[-_LONGEST_NAME:] for part in module.text.split("(")}
            for name in {match[0] for part in before if (match := _CALLED.search(part))}:
                found[name].append(module)
        return found

    # What a name means.

    def lookup(self, name: str, function: Function) -> Function | Class | Module | None:
        """The function, class or module that a name means in a function."""
        for scope in function.scopes():
            if name in scope.inner:
                return scope.inner[name]
        return self._in_module(function.module, name)

    def binding(self, name: str, function: Function, depth: int = 0) -> Binding | None:
        """Where a name of a function is bound: in it, around it, or in the file it is imported from."""
        for scope in function.scopes():
            is_parameter = name in scope.parameters
            if is_parameter or name in scope.bindings:
                return Binding(scope, tuple(scope.bindings.get(name, ())), is_parameter)
        brought = function.module.imports.get(name)
        if brought is None or brought.attribute is None or depth > MAX_HOPS:
            return None
        source = self.module_from(brought.module, function.module)
        if source is None or source is function.module:
            return None
        return self.binding(brought.attribute, source.body, depth + 1)

    def sources(self, name: str, function: Function) -> list[tuple[ast.expr, Function]]:
        """Expressions that a name may stand for, each with its function: assigned to it, or passed by callers."""
        if name.startswith("self.") and function.owner is not None:
            return function.owner.assigned(name.removeprefix("self."))
        for scope in function.scopes():
            if values := scope.bindings.get(name):
                return [(value, scope) for value in values]
            if name in scope.parameters:
                calls = self.callers(scope)[:_MOST_CALLERS]
                given = [(scope.arguments(call).get(name), caller) for call, caller in calls]
                return [(value, caller) for value, caller in given if value is not None]
        return []

    def _in_module(self, module: Module, name: str, depth: int = 0) -> Function | Class | Module | None:
        if name in module.body.inner:
            return module.body.inner[name]
        if name in module.classes:
            return module.classes[name]
        brought = module.imports.get(name)
        if depth > MAX_HOPS:
            return None
        if brought is None:
            sources = [self.module_from(star, module) for star in module.stars]
            meant = (
                self._in_module(source, name, depth + 1)
                for source in sources
                if source is not None and source is not module
            )
            return next((found for found in meant if found is not None), None)
        if brought.attribute is None:
            return self.module_from(brought.module, module)
        inner = f"{brought.module}.{brought.attribute}" if brought.module else brought.attribute
        whole = self.module_from(inner, module)
        source = self.module_from(brought.module, module)
        if source is not None and source is not module:
            found = self._in_module(source, brought.attribute, depth + 1)
            if found is not None:
                return found
        return whole

    def resolve(self, call: ast.Call, function: Function) -> list[Function]:
        """The functions of the project that a call may run; none if that is not known."""
        func = call.func
        if isinstance(func, ast.Attribute):
            return self._resolve_method(func, function)
        if not isinstance(func, ast.Name):
            return []
        meant = self.lookup(func.id, function)
        if isinstance(meant, Function):
            return [meant]
        if isinstance(meant, Class):
            return self.methods(meant, "__init__")
        return self._aliased(func.id, function) or self._of_instance(func, function)

    def _resolve_method(self, func: ast.Attribute, function: Function) -> list[Function]:
        owner = function.owner
        if owner is not None and is_call(func.value, "super"):
            return [m for base in self._bases(owner) for m in self.methods(base, func.attr)][:1]
        if owner is not None and isinstance(func.value, ast.Name) and func.value.id in ("self", "cls"):
            # Overrides in subclasses may run as well; a method that only raises NotImplementedError does nothing.
            own = [method for method in self.methods(owner, func.attr) if not _is_left_open(method)]
            found = own + [method for method in self._overrides(owner, func.attr) if method not in own]
            return found or self._of_instance(func, function)
        if name := dotted_name(func.value):
            meant = self._chain(name, function)
            if isinstance(meant, Module):
                inside = self._in_module(meant, func.attr)
                if isinstance(inside, Class):
                    return self.methods(inside, "__init__")
                return [inside] if isinstance(inside, Function) else []
            if isinstance(meant, Class):
                return self.methods(meant, func.attr)
            if meant is None and name.split(".")[0] in function.module.imports:
                return []  # of a library: `time.time()`
        cls = self.class_of(func.value, function)
        if cls is not None:
            return self.methods(cls, func.attr) or self._of_instance(func, function)
        return self._by_method_name(func.attr)

    def _aliased(self, name: str, function: Function) -> list[Function]:
        """The functions a name is assigned: `make = fast if new else slow`, `partial(slow, 3)`, `decorate(slow)`."""
        found = []
        for value in function.bindings.get(name, ()):
            parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
            for node in parts:
                if is_call(node, "partial") and node.args:
                    node = node.args[0]
                elif isinstance(node, ast.Call):
                    found += self._closures(node, function)
                meant = self._chain(dotted_name(node), function) if dotted_name(node) not in ("", name) else None
                if isinstance(meant, Function):
                    found.append(meant)
        return found

    def _closures(self, call: ast.Call, function: Function) -> list[Function]:
        """`average = running_mean(0.9)`: the inner function that the called one returns."""
        made = self._chain(dotted_name(call.func), function) if dotted_name(call.func) else None
        if not isinstance(made, Function) or not made.inner:
            return []
        returned = [node.value for node in ast.walk(made.node) if isinstance(node, ast.Return)]
        names = [value.id for value in returned if isinstance(value, ast.Name)]
        return [made.inner[name] for name in names if name in made.inner]

    def _chain(self, name: str, function: Function) -> Function | Class | Module | None:
        first, *rest = name.split(".")
        meant = self.lookup(first, function)
        for part in rest:
            if not isinstance(meant, Module):
                return None
            meant = self._in_module(meant, part) or self.module_named(f"{meant.name}.{part}")
        return meant

    def _of_instance(self, func: ast.expr, function: Function) -> list[Function]:
        """An object that is called: a module's `forward`, or `__call__`."""
        cls = self.class_of(func, function)
        return [] if cls is None else self.methods(cls, "forward") or self.methods(cls, "__call__")

    def _by_method_name(self, name: str) -> list[Function]:
        """Of an unknown object: the project's only method of this name, or the overrides of one abstract method."""
        modules = self._modules_by_definition.get(name, ())
        if name in _COMMON or name.startswith("__") or len(modules) > _MOST_OVERRIDES:
            return []
        classes = [cls for module in modules for cls in module.classes.values() if name in cls.methods]
        if any(name in module.body.inner for module in modules):
            return []
        if len(classes) == 1:
            return [classes[0].methods[name]]
        # Hooks, callbacks: subclasses of one class that leaves the method open.
        roots = [cls for cls in classes if not any(base in classes for base in self._bases(cls))]
        if len(roots) != 1 or not _is_left_open(roots[0].methods[name]):
            return []
        return [cls.methods[name] for cls in classes if cls is not roots[0]]

    # Classes.

    def methods(self, cls: Class, name: str, depth: int = 0) -> list[Function]:
        """The class's own method, else the first that a base class has."""
        if name in cls.methods:
            return [cls.methods[name]]
        if depth > MAX_HOPS:
            return []
        for base in self._bases(cls):
            if base is not cls and (found := self.methods(base, name, depth + 1)):
                return found
        return []

    def _bases(self, cls: Class) -> list[Class]:
        meant = (self._chain(name, cls.module.body) for name in cls.bases)
        return [base for base in meant if isinstance(base, Class)]

    def _overrides(self, cls: Class, name: str) -> list[Function]:
        """Overrides of a method in subclasses."""
        found = []
        subclass = re.compile(rf"class \w+\([^)]*\b{cls.name}\b")
        for module in self._modules_by_definition.get(name, ()):
            # Parsing is expensive: only files that have such a class.
            for other in module.classes.values() if subclass.search(module.text) else ():
                if name in other.methods and any(base.split(".")[-1] == cls.name for base in other.bases):
                    found.append(other.methods[name])
        return found[:_MOST_OVERRIDES]

    def is_a(self, cls: Class, ending: str, depth: int = 0) -> bool:
        """Does the name of a base class, of the project or not, end so?"""
        if any(base.split(".")[-1].endswith(ending) for base in cls.bases):
            return True
        return depth < MAX_HOPS and any(self.is_a(b, ending, depth + 1) for b in self._bases(cls) if b is not cls)

    def class_of(self, node: ast.expr, function: Function, depth: int = 0) -> Class | None:
        """The class of the project that the value of an expression is an instance of."""
        key = (id(node), id(function))
        if key not in self._classes:
            self._classes[key] = None  # while it is being looked at
            self._classes[key] = self._class_of(node, function, depth) if depth <= MAX_HOPS else None
        return self._classes[key]

    def _class_of(self, node: ast.expr, function: Function, depth: int) -> Class | None:
        if isinstance(node, ast.Call):
            return self._class_of_call(node, function, depth)
        if isinstance(node, ast.Await):
            return self.class_of(node.value, function, depth + 1)
        if isinstance(node, ast.IfExp):
            return self.class_of(node.body, function, depth + 1) or self.class_of(node.orelse, function, depth + 1)
        name = dotted_name(node)
        if not name:
            return None
        if name == "self":
            return function.owner
        if name.startswith("self.") and function.owner is not None:
            return self._class_of_attribute(function.owner, name, depth)
        for scope in function.scopes():
            for value in scope.bindings.get(name, ()):
                if (found := self.class_of(value, scope, depth + 1)) is not None:
                    return found
            if (annotated := self._annotated(name, scope)) is not None:
                return annotated
        return None

    def _class_of_attribute(self, owner: Class, name: str, depth: int) -> Class | None:
        for cls in (owner, *self._bases(owner)):
            for value, method in cls.assigned(name.removeprefix("self.")):
                if (found := self.class_of(value, method, depth + 1)) is not None:
                    return found
        return None

    def _class_of_call(self, call: ast.Call, function: Function, depth: int) -> Class | None:
        name = called_name(call)
        func = call.func
        meant = self._chain(dotted_name(func), function) if dotted_name(func) else None
        if isinstance(meant, Class):
            return meant
        if isinstance(meant, Function):
            values = [
                node.value for node in ast.walk(meant.node) if isinstance(node, ast.Return) and node.value is not None
            ]
            classes = (self.class_of(value, meant, depth + 1) for value in values)
            return next((cls for cls in classes if cls is not None), None)
        if name in _SAME and isinstance(func, ast.Attribute):
            return self.class_of(func.value, function, depth + 1)
        if name in _WRAPPERS:
            for given in call.args:
                if (found := self.class_of(given, function, depth + 1)) is not None:
                    return found
        return None

    def _annotated(self, name: str, function: Function) -> Class | None:
        note = parameter_annotation(function.definition, name)
        if note is None:
            return None
        is_text = isinstance(note, ast.Constant) and isinstance(note.value, str)
        text = str(note.value) if isinstance(note, ast.Constant) and is_text else dotted_name(note)
        meant = self._chain(text, function) if text else None
        return meant if isinstance(meant, Class) else None

    def callers(self, function: Function) -> list[tuple[ast.Call, Function]]:
        """Calls in the project that may run this function."""
        name = function.name
        if name in ("forward", "__call__"):
            return []  # called by whatever name the object has
        if name == "__init__" and function.owner is not None:
            name = function.owner.name
        return [
            (call, inside)
            for module in self._modules_by_call.get(name, ())
            for call, inside in module.calls.get(name, ())
            if function in self.resolve(call, inside)
        ]


def _is_left_open(function: Function) -> bool:
    """Is it only there to be overridden: `raise NotImplementedError`, `pass` or `...`, after a docstring?"""
    body = [
        part for part in function.node.body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
    ]
    return all(isinstance(node, ast.Raise | ast.Pass) for node in body)
