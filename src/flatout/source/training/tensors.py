"""Abstract interpretation of tensors: which expressions are on a device.

`graph`: on a device, with an autograd graph. `device`: on a device. `host`: a number, an array, a tensor in host
memory. None: not known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Literal

from flatout.source.flow import devices as words
from flatout.source.flow.devices import moves_to
from flatout.source.project.project import Project
from flatout.source.syntax.module import Class, Function
from flatout.source.syntax.nodes import (
    DEFINITIONS,
    argument,
    assigned_names,
    bound_names,
    callable_of,
    called_name,
    dotted_name,
    last_name,
    registers_hook,
    targets_of,
    unpacked,
)
from flatout.source.training.regions import Loop, Region

Kind = Literal["graph", "device", "host"] | None
Kinds = dict[str, Kind]
ON_DEVICE = ("graph", "device")
# What functions return for the kinds of their arguments, so that each is followed once: the kind of the whole, and of
# each part of a tuple.
Given = tuple[int, tuple[tuple[str, Kind], ...]]
Returns = dict[Given, tuple[Kind, tuple[Kind, ...]]]

# Calls are followed for each combination of kinds they are given: deeper costs more than it tells.
_MAX_CALL_DEPTH = 3


def join_kinds(*kinds: Kind) -> Kind:
    """The kind of an operation on all of these."""
    if "graph" in kinds:
        return "graph"
    if "device" in kinds:
        return "device"
    return None if None in kinds else "host"


class Tensors:
    """Kinds of all expressions in one function, in the order of its text."""

    def __init__(
        self,
        project: Project,
        function: Function,
        given: Kinds | None = None,
        returns: Returns | None = None,
        depth: int = 0,
    ) -> None:
        self.project = project
        self.function = function
        self._depth = depth
        self._returns: Returns = {} if returns is None else returns
        self._given = dict(given or {})
        self._of: dict[int, Kind] = {}
        self.returned: Kind = None
        self.returns = False
        # Kinds of the parts of the tuple that it returns.
        self.parts: tuple[Kind, ...] = ()
        # Kinds at the end of an iteration, for the next one.
        self._left: dict[int, Kinds] = {}
        self._moved_by_framework = bool(words.FRAMEWORK_MOVES.search(function.module.text))
        env: Kinds = {}
        # Twice: in a loop, later statements feed earlier ones. Once is enough for what a callee returns.
        for _ in range(1 if depth else 2):
            env.update(self._given)
            self._block(function.node.body, env)

    def of(self, node: ast.AST) -> Kind:
        """The kind of an expression of this function."""
        return self._of.get(id(node))

    def is_on_device(self, node: ast.AST) -> bool:
        """Is an expression certainly on a device?"""
        return self._of.get(id(node)) in ON_DEVICE

    # Statements.

    def _block(self, body: Sequence[ast.stmt], env: Kinds) -> None:
        for statement in body:
            self._statement(statement, env)

    def _statement(self, node: ast.stmt, env: Kinds) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            self._assignment(node, env)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            self._loop(node, env)
        elif isinstance(node, ast.If):
            self._kind(node.test, env)
            self._branches(node.body, node.orelse, env)
        elif isinstance(node, ast.With | ast.AsyncWith):
            self._with(node, env)
        elif isinstance(node, ast.Return) and node.value is not None:
            self._return(node.value, env)
        elif isinstance(node, ast.Expr):
            self._expression(node.value, env)
        elif not isinstance(node, DEFINITIONS):
            self._parts(node, env)

    def _assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, env: Kinds) -> None:
        if node.value is None:
            return
        kind = self._kind(node.value, env)
        if isinstance(node, ast.AugAssign):
            # An unknown name starts as a number; an attribute may hold anything.
            before = env.get(dotted_name(node.target), "host" if isinstance(node.target, ast.Name) else None)
            kind = join_kinds(kind, before)
        for target in targets_of(node):
            self._assign(target, node.value, kind, env)

    def _return(self, value: ast.expr, env: Kinds) -> None:
        kind = self._kind(value, env)
        if self.returns and self.returned != kind:
            # A number on one path and a tensor on another: not known.
            kind = None if "host" in (self.returned, kind) else join_kinds(self.returned, kind)
        parts = tuple(self.of(part) for part in value.elts) if isinstance(value, ast.Tuple) else ()
        # Paths that disagree leave the parts unknown.
        self.parts = parts if not self.returns or self.parts == parts else ()
        self.returned, self.returns = kind, True

    def _parts(self, node: ast.stmt, env: Kinds) -> None:
        """Any other statement: `try`, `match`, `assert` …"""
        for name, part in ast.iter_fields(node):
            if name in ("body", "orelse", "finalbody"):
                self._block(part, env)
            elif name in ("handlers", "cases"):
                for branch in part:
                    self._block(branch.body, env)
            elif isinstance(part, ast.expr):
                self._kind(part, env)

    def _expression(self, value: ast.expr, env: Kinds) -> None:
        self._kind(value, env)
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
            return
        owner = dotted_name(value.func.value)
        if value.func.attr == "to" and owner and moves_to(value):
            env[owner] = moves_to(value)  # `data.to(device)` of a graph or a module works in place
        elif value.func.attr in ("append", "extend", "add") and owner and value.args:
            kind = self.of(value.args[-1])
            if kind != "host":
                env[owner] = kind

    def _loop(self, node: Loop, env: Kinds) -> None:
        if isinstance(node, ast.While):
            self._carry(node, env)
            self._kind(node.test, env)
        else:
            kind = self._kind(node.iter, env)
            self._carry(node, env)
            self._iterate(node.target, node.iter, kind, env)
        self._block(node.body, env)
        self._left[id(node)] = dict(env)
        self._block(node.orelse, env)

    def _carry(self, node: ast.stmt, env: Kinds) -> None:
        """Names that start as a number and are tensors after the first iteration: `loss = 0` before the loop."""
        left = self._left.get(id(node), {})
        for name in assigned_names(node) if left else ():
            if env.get(name) == "host" and left.get(name) in ON_DEVICE:
                env[name] = left[name]

    def _iterate(self, target: ast.expr, over: ast.expr, kind: Kind, env: Kinds) -> None:
        if isinstance(over, ast.Call):
            name = called_name(over)
            if name == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2 and over.args:
                self._put(target.elts[0], "host", env)
                self._iterate(target.elts[1], over.args[0], self.of(over.args[0]), env)
                return
            if name == "zip" and isinstance(target, ast.Tuple) and len(target.elts) == len(over.args):
                for element, part in zip(target.elts, over.args, strict=True):
                    self._iterate(element, part, self.of(part), env)
                return
            if name in ("tqdm", "trange", "track", "iter", "log_every", "progress_bar", "islice") and over.args:
                self._iterate(target, over.args[0], self.of(over.args[0]), env)
                return
            if isinstance(target, ast.Tuple) and len(target.elts) == 2 and name in words.PAIRS:
                self._put(target.elts[0], "host", env)  # the name
                self._put(target.elts[1], "graph" if name == "named_parameters" else kind, env)
                return
            if name in ("parameters", "named_parameters"):
                kind = "graph"
            elif name == "range":
                kind = "host"
        elif words.LOADER.search(last_name(over)):
            kind = None if self._moved_by_framework else "host"
        self._put(target, kind, env)

    def _with(self, node: ast.With | ast.AsyncWith, env: Kinds) -> None:
        for item in node.items:
            kind = self._kind(item.context_expr, env)
            if item.optional_vars is not None:
                self._put(item.optional_vars, kind, env)
        self._block(node.body, env)
        heads = {last_name(callable_of(item.context_expr)) for item in node.items}
        if heads & {"no_grad", "inference_mode"}:
            for part in node.body:
                for name in bound_names(part):
                    if env.get(name) == "graph":
                        env[name] = "device"

    def _branches(self, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt], env: Kinds) -> None:
        current, other = dict(env), dict(env)
        self._block(body, current)
        self._block(orelse, other)
        for name in current.keys() | other.keys():
            kinds = [env_[name] for env_ in (current, other) if name in env_]
            env[name] = kinds[0] if len(set(kinds)) == 1 else join_kinds(*(k for k in kinds if k != "host"))

    def _assign(self, target: ast.expr, value: ast.expr, kind: Kind, env: Kinds) -> None:
        if pairs := unpacked(target, value):
            for element, part in pairs:
                self._put(element, self.of(part), env)
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Call):
            kinds = self._parts_of(value, len(target.elts), kind)
            for element, each in zip(target.elts, kinds, strict=True):
                self._put(element, each, env)
        elif isinstance(target, ast.Subscript):
            self._kind(target, env)
            name = dotted_name(target.value)
            if name and kind in ON_DEVICE:
                env[name] = kind
        else:
            self._put(target, kind, env)

    def _parts_of(self, call: ast.Call, count: int, kind: Kind) -> Sequence[Kind]:
        """Kinds of the parts of what a call returns, to be unpacked."""
        if called_name(call) == "popitem" and count == 2:
            return "host", kind
        known = self._follow(call)
        return known[1] if known is not None and len(known[1]) == count else [kind] * count

    def _put(self, target: ast.expr, kind: Kind, env: Kinds) -> None:
        if isinstance(target, ast.Attribute):
            if name := dotted_name(target):
                env[name] = kind
        else:
            for name in bound_names(target):
                env[name] = kind

    # Expressions.

    def _kind(self, node: ast.expr, env: Kinds) -> Kind:
        kind = self._kind_of(node, env)
        self._of[id(node)] = kind
        return kind

    def _kind_of(self, node: ast.expr, env: Kinds) -> Kind:
        if isinstance(node, ast.Constant):
            return "host"
        if isinstance(node, ast.Name):
            return env.get(node.id)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, env)
        if isinstance(node, ast.Call):
            return self._call(node, env)
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
            return self._comprehension(node, env)
        if isinstance(node, ast.Lambda):
            return None
        parts = [self._kind(part, env) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        if isinstance(node, ast.NamedExpr):
            env[node.target.id] = parts[-1]
            return parts[-1]
        return self._combined(node, parts)

    def _combined(self, node: ast.expr, parts: list[Kind]) -> Kind:
        """The kind of an expression by those of its parts."""
        if isinstance(node, ast.JoinedStr | ast.FormattedValue):
            return "host"
        if isinstance(node, ast.Subscript):
            return parts[0]
        if isinstance(node, ast.Compare):
            if any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops):
                return "host"
            return "device" if join_kinds(*parts) in ON_DEVICE else join_kinds(*parts)
        if isinstance(node, ast.IfExp):
            return join_kinds(self.of(node.body), self.of(node.orelse))
        return join_kinds(*parts) if parts else None

    def _attribute(self, node: ast.Attribute, env: Kinds) -> Kind:
        name = dotted_name(node)
        inner = self._kind(node.value, env)
        if name in env:
            return env[name]
        if node.attr in words.HOST_ATTRIBUTES:
            return "host"
        if node.attr in ("data", "grad"):
            # Gradients are where the step computes them.
            return "device" if inner in ON_DEVICE or (node.attr == "grad" and inner is None) else inner
        return inner

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp, env: Kinds) -> Kind:
        inner = dict(env)
        for part in node.generators:
            self._iterate(part.target, part.iter, self._kind(part.iter, inner), inner)
            for test in part.ifs:
                self._kind(test, inner)
        if isinstance(node, ast.DictComp):
            self._kind(node.key, inner)
            return self._kind(node.value, inner)
        return self._kind(node.elt, inner)

    def _call(self, call: ast.Call, env: Kinds) -> Kind:
        func, name = call.func, called_name(call)
        receiver = self._kind(func.value, env) if isinstance(func, ast.Attribute) else None
        given = [self._kind(value, env) for value in call.args]
        given += [self._kind(keyword.value, env) for keyword in call.keywords]
        moved = moves_to(call)
        if moved == "device":
            return "graph" if receiver == "graph" else "device"
        if moved == "host" or name in (words.HOST_METHODS if isinstance(func, ast.Attribute) else words.HOST_BUILTINS):
            return "host"
        if name == "clip_grad_norm_":
            return "device"
        if name in words.DETACHING:
            return "device" if receiver == "graph" else receiver
        owner = dotted_name(func).split(".")[0] if isinstance(func, ast.Attribute) else ""
        if owner in words.HOST_MODULES:
            return "host"
        if owner in words.TORCH or self._is_from_torch(owner or name):
            return self._of_torch(call, name, given)
        known = self._follow(call)
        if known is not None and known[0] is not None:
            return known[0]
        return self._of_unknown_call(call, name, receiver, given)

    def _of_torch(self, call: ast.Call, name: str, given: list[Kind]) -> Kind:
        if name in words.MAKERS:
            place = argument(call, "device")
            if place is None:
                return "host"
            return "host" if isinstance(place, ast.Constant) and str(place.value).startswith("cpu") else "device"
        if name.endswith("_like") or given:
            return join_kinds(*given)
        return None

    def _is_from_torch(self, name: str) -> bool:
        return self.function.module.library_of(name) in ("torch", "einops") and name[:1].islower()

    def _follow(self, call: ast.Call) -> tuple[Kind, tuple[Kind, ...]] | None:
        """What a function of the project returns for these arguments, as a whole and in parts."""
        callees = self.project.resolve(call, self.function)
        if not callees or self._depth >= _MAX_CALL_DEPTH:
            return None
        callee = callees[0]
        if callee.definition is None or callee.name == "__init__":
            return None
        of, project = callee.owner, self.project
        if (
            callee.name in ("forward", "__call__")
            and of is not None
            and (project.is_a(of, "Module") or project.is_a(of, "Model"))
        ):
            return "graph", ()
        kinds = parameter_kinds(call, callee, self)
        key = (id(callee), tuple(sorted(kinds.items(), key=lambda item: item[0])))
        if key not in self._returns:
            self._returns[key] = None, ()  # while it is followed: recursion ends here
            result = Tensors(self.project, callee, kinds, self._returns, self._depth + 1)
            # Without a `return` it gives nothing; not known if it is only there to be overridden.
            is_open = any(isinstance(node, ast.Raise | ast.Pass) for node in callee.node.body)
            nothing: Kind = None if is_open else "host"
            self._returns[key] = (result.returned, result.parts) if result.returns else (nothing, ())
        return self._returns[key]

    def _of_unknown_call(self, call: ast.Call, name: str, receiver: Kind, given: list[Kind]) -> Kind:
        func = call.func
        if isinstance(func, ast.Name):
            if name in words.JOINING:
                return join_kinds(*given) if given else "host"
            if words.TO_DEVICE.search(name):
                return "device"
        if words.LOSS.search(name):
            return "graph"
        if words.MODEL.search(name) and name[:1].islower():
            return "graph"
        if isinstance(func, ast.Attribute):
            if receiver in ON_DEVICE:
                return receiver
            if dotted_name(func).startswith("self.") and ("device" in given or "graph" in given):
                return "graph"  # a part of the model that cannot be followed
            return receiver if receiver == "host" and not given else None
        # An object that is called with tensors is a model, unless it is named as a metric.
        bound = (name in self.function.bindings or name in self._given) and not words.COUNTING.search(name)
        return "graph" if bound and ("device" in given or "graph" in given) else None


def parameter_kinds(call: ast.Call, callee: Function, tensors: Tensors) -> Kinds:
    """Kinds of a callee's parameters for a call."""
    if callee.definition is None:
        return {}
    return {name: tensors.of(value) for name, value in callee.arguments(call).items()}


# Attributes that hold results, by their names: an object holds its model and much else as well.
_RESULTS = re.compile(r"loss|logits?$|output|pred|score|prob|error|acc(uracy)?$", re.I)


class RegionTensors:
    """Kinds in every region of a training, passed from the loop down to what it calls."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._known: dict[int, Tensors] = {}
        self._returns: Returns = {}
        self._held: dict[int, Kinds] = {}

    def of(self, region: Region) -> Tensors:
        if id(region) not in self._known:
            given = dict(self._object_results(region.function))
            if region.call_site is not None:
                given |= self._given(region)
            self._known[id(region)] = Tensors(self._project, region.function, given, self._returns)
        return self._known[id(region)]

    def _given(self, region: Region) -> Kinds:
        assert region.call_site is not None
        if registers_hook(region.call_site.call):
            return dict.fromkeys(region.function.parameters, "device")  # it is given gradients
        return parameter_kinds(region.call_site.call, region.function, self.of(region.call_site.caller))

    def _object_results(self, function: Function) -> Kinds:
        """Attributes in which other methods leave results: `self.losses = losses`."""
        owner = function.owner
        if owner is None or function.definition is None:
            return {}
        if id(owner) not in self._held:
            self._held[id(owner)] = {}  # while it is being looked at
            self._held[id(owner)] = self._results_of(owner)
        return self._held[id(owner)]

    def _results_of(self, owner: Class) -> Kinds:
        found: dict[str, set[str | None]] = {}
        for method in owner.methods.values():
            names = [name for name in method.bindings if name.startswith("self.") and _RESULTS.search(name)]
            # `__init__` sets parts of the model, settings, or empty values.
            if method.name == "__init__" or not names:
                continue
            kinds = Tensors(self._project, method, {}, self._returns, 1)
            for name in names:
                values = [given for given in method.bindings[name] if not isinstance(given, ast.Constant)]
                found.setdefault(name, set()).update(kinds.of(value) for value in values)
        return {
            name: "graph" if "graph" in kinds else "device"
            for name, kinds in found.items()
            if kinds & set(ON_DEVICE) and "host" not in kinds
        }
