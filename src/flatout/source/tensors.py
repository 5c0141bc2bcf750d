"""Which expressions are tensors on a device, told from the text: yes, no, or not known.

`graph`: on a device, and autograd keeps what it was made of. `device`: on a device. `host`: a number, an array, a
tensor in host memory. None: it cannot be told.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Literal

from flatout.source.module import Function
from flatout.source.moves import moves_to
from flatout.source.nodes import bound_names, callable_of, called_name, dotted, passed
from flatout.source.project import Project

Kind = Literal["graph", "device", "host"] | None
Kinds = dict[str, Kind]
# What functions return for the kinds they are given, so that each is followed once.
Returns = dict[tuple[int, tuple[tuple[str, Kind], ...]], Kind]

_FRAMEWORK_MOVES = re.compile(r"accelerator\b|fabric\b|LightningModule|lightning|Trainer\b")
# Methods, and functions of the language, that give no tensor of the device.
_HOST_METHODS = {
    "item", "tolist", "numpy", "size", "dim", "numel", "ndimension", "cpu", "format", "join", "time", "perf_counter",
    "get_last_lr", "data_ptr", "element_size", "is_contiguous", "keys", "stride", "get_device",
}  # fmt: skip
_HOST_BUILTINS = {
    "len", "int", "float", "str", "bool", "repr", "round", "range", "isinstance", "hasattr", "print", "id", "type",
}  # fmt: skip
_HOST_ATTRIBUTES = {"shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "grad_fn", "itemsize", "nbytes"}
_DETACHING = {"detach", "detach_", "clone_detached"}
_JOINING = {
    "sum", "max", "min", "abs", "list", "tuple", "sorted", "zip", "dict", "reversed", "set", "next", "iter",
    "enumerate",
}  # fmt: skip
_MAKERS = {
    "tensor", "as_tensor", "zeros", "ones", "full", "empty", "arange", "linspace", "rand", "randn", "randint",
    "randperm", "eye", "from_numpy", "Tensor", "FloatTensor", "LongTensor",
}  # fmt: skip
_TORCH = {"torch", "F", "nn", "functional", "einops", "TF", "kornia"}
_HOST_MODULES = {
    "np", "numpy", "math", "random", "time", "os", "json", "cv2", "PIL", "plt", "pd", "scipy", "sklearn", "datetime",
}  # fmt: skip
_MODEL = re.compile(
    r"(^|_)(model|net|network|backbone|encoder|decoder|critic|actor|policy|generator|discriminator|unet|vae|gan|bert|ddp|"
    r"module|head|classifier|detector|student|netg|netd|engine|embedder|transformer)\d*(_|$)|^[gd]$|^net|model$",
    re.I,
)
_LOSS = re.compile(r"loss|criterion|criteria|objective|crit(_|$)", re.I)
_LOADER = re.compile(r"loader|dataloader|batches|(^|_)dl$", re.I)
_TO_DEVICE = re.compile(r"to_device|to_cuda|to_gpu|move_to|send_to|cuda|copy_to_device|prepare_batch|move_data", re.I)
_COUNTING = re.compile(r"averag|meter|metric|track|smooth|stat|record|accum|ema|log", re.I)
# What gives pairs of a name and something.
_PAIRS = {"named_parameters", "named_buffers", "named_modules", "named_children", "items"}
_DEEPEST = 3


def joined(*kinds: Kind) -> Kind:
    """Of an operation on all of these."""
    if "graph" in kinds:
        return "graph"
    if "device" in kinds:
        return "device"
    return None if None in kinds else "host"


class Tensors:
    """Kinds of all expressions in one function, followed in the order of its text."""

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
        self._moved_by_framework = bool(_FRAMEWORK_MOVES.search(function.module.text))
        env: Kinds = {}
        # Twice: a loop's later statements feed its earlier ones. For what a callee returns once will do.
        for _ in range(1 if depth else 2):
            env.update(self._given)
            self._block(function.node.body, env)

    def of(self, node: ast.AST) -> Kind:
        """The kind of an expression of this function where it stands."""
        return self._of.get(id(node))

    # Statements.

    def _block(self, body: Sequence[ast.stmt], env: Kinds) -> None:
        for statement in body:
            self._statement(statement, env)

    def _statement(self, node: ast.stmt, env: Kinds) -> None:
        if isinstance(node, ast.Assign):
            kind = self._kind(node.value, env)
            for target in node.targets:
                self._assign(target, node.value, kind, env)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._assign(node.target, node.value, self._kind(node.value, env), env)
        elif isinstance(node, ast.AugAssign):
            kind = joined(self._kind(node.value, env), env.get(dotted(node.target), "host"))
            self._assign(node.target, node.value, kind, env)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self._for(node, env)
        elif isinstance(node, ast.If):
            self._kind(node.test, env)
            self._branches(node.body, node.orelse, env)
        elif isinstance(node, ast.With | ast.AsyncWith):
            self._with(node, env)
        elif isinstance(node, ast.Return) and node.value is not None:
            kind = self._kind(node.value, env)
            if self.returns and self.returned != kind:
                # Now a number, now a tensor: that cannot be told.
                kind = None if "host" in (self.returned, kind) else joined(self.returned, kind)
            self.returned, self.returns = kind, True
        elif isinstance(node, ast.Expr):
            self._expression(node.value, env)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for name, part in ast.iter_fields(node):
                if name in ("body", "orelse", "finalbody"):
                    self._block(part, env)
                elif name in ("handlers", "cases"):
                    for one in part:
                        self._block(one.body, env)
                elif isinstance(part, ast.expr):
                    self._kind(part, env)

    def _expression(self, value: ast.expr, env: Kinds) -> None:
        self._kind(value, env)
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
            return
        owner = dotted(value.func.value)
        if value.func.attr == "to" and owner and moves_to(value):
            env[owner] = moves_to(value)  # `data.to(device)` of a graph or a module works in place
        elif value.func.attr in ("append", "extend", "add") and owner and value.args:
            kind = self.of(value.args[-1])
            if kind != "host":
                env[owner] = kind

    def _for(self, node: ast.For | ast.AsyncFor, env: Kinds) -> None:
        kind = self._kind(node.iter, env)
        self._iterate(node.target, node.iter, kind, env)
        self._block(node.body, env)
        self._block(node.orelse, env)

    def _iterate(self, target: ast.expr, over: ast.expr, kind: Kind, env: Kinds) -> None:
        if isinstance(over, ast.Call):
            name = called_name(over)
            if name == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2 and over.args:
                self._put(target.elts[0], "host", env)
                self._iterate(target.elts[1], over.args[0], self.of(over.args[0]), env)
                return
            if name == "zip" and isinstance(target, ast.Tuple) and len(target.elts) == len(over.args):
                for one, part in zip(target.elts, over.args, strict=True):
                    self._iterate(one, part, self.of(part), env)
                return
            if name in ("tqdm", "trange", "track", "iter", "log_every", "progress_bar", "islice") and over.args:
                self._iterate(target, over.args[0], self.of(over.args[0]), env)
                return
            if isinstance(target, ast.Tuple) and len(target.elts) == 2 and name in _PAIRS:
                self._put(target.elts[0], "host", env)  # the name
                self._put(target.elts[1], "graph" if name == "named_parameters" else kind, env)
                return
            if name in ("parameters", "named_parameters"):
                kind = "graph"
            elif name == "range":
                kind = "host"
        elif _LOADER.search(dotted(over).split(".")[-1]):
            kind = None if self._moved_by_framework else "host"
        self._put(target, kind, env)

    def _with(self, node: ast.With | ast.AsyncWith, env: Kinds) -> None:
        for item in node.items:
            kind = self._kind(item.context_expr, env)
            if item.optional_vars is not None:
                self._put(item.optional_vars, kind, env)
        self._block(node.body, env)
        heads = {dotted(callable_of(item.context_expr)).split(".")[-1] for item in node.items}
        if heads & {"no_grad", "inference_mode"}:
            for one in node.body:
                for name in bound_names(one):
                    if env.get(name) == "graph":
                        env[name] = "device"

    def _branches(self, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt], env: Kinds) -> None:
        one, other = dict(env), dict(env)
        self._block(body, one)
        self._block(orelse, other)
        for name in one.keys() | other.keys():
            kinds = [env_[name] for env_ in (one, other) if name in env_]
            env[name] = kinds[0] if len(set(kinds)) == 1 else joined(*(k for k in kinds if k != "host"))

    def _assign(self, target: ast.expr, value: ast.expr, kind: Kind, env: Kinds) -> None:
        if (
            isinstance(target, ast.Tuple | ast.List)
            and isinstance(value, ast.Tuple | ast.List)
            and len(target.elts) == len(value.elts)
        ):
            for one, part in zip(target.elts, value.elts, strict=True):
                self._put(one, self.of(part), env)
        elif isinstance(target, ast.Subscript):
            self._kind(target, env)
            name = dotted(target.value)
            if name and kind in ("graph", "device"):
                env[name] = kind
        else:
            self._put(target, kind, env)

    def _put(self, target: ast.expr, kind: Kind, env: Kinds) -> None:
        if isinstance(target, ast.Attribute):
            if name := dotted(target):
                env[name] = kind
        else:
            for name in bound_names(target):
                env[name] = kind

    # Expressions.

    def _kind(self, node: ast.expr, env: Kinds) -> Kind:
        kind = self._found(node, env)
        self._of[id(node)] = kind
        return kind

    def _found(self, node: ast.expr, env: Kinds) -> Kind:
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
        parts = [self._kind(one, env) for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]
        if isinstance(node, ast.JoinedStr | ast.FormattedValue):
            return "host"
        if isinstance(node, ast.Subscript):
            return parts[0]
        if isinstance(node, ast.Compare) and any(
            isinstance(o, ast.Is | ast.IsNot | ast.In | ast.NotIn) for o in node.ops
        ):
            return "host"
        if isinstance(node, ast.IfExp):
            parts = [self._of.get(id(node.body)), self._of.get(id(node.orelse))]
        if isinstance(node, ast.Compare):
            return "device" if joined(*parts) in ("graph", "device") else joined(*parts)
        if isinstance(node, ast.NamedExpr):
            env[node.target.id] = parts[-1]
            return parts[-1]
        return joined(*parts) if parts else None

    def _attribute(self, node: ast.Attribute, env: Kinds) -> Kind:
        name = dotted(node)
        inner = self._kind(node.value, env)
        if name in env:
            return env[name]
        if node.attr in _HOST_ATTRIBUTES:
            return "host"
        if node.attr in ("data", "grad"):
            return "device" if inner in ("graph", "device") else inner
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
        given = [self._kind(one, env) for one in call.args]
        given += [self._kind(one.value, env) for one in call.keywords]
        moved = moves_to(call)
        if moved == "device":
            return "graph" if receiver == "graph" else "device"
        if moved == "host" or name in (_HOST_METHODS if isinstance(func, ast.Attribute) else _HOST_BUILTINS):
            return "host"
        if name == "clip_grad_norm_":
            return "device"
        if name in _DETACHING:
            return "device" if receiver == "graph" else receiver
        owner = dotted(func).split(".")[0] if isinstance(func, ast.Attribute) else ""
        if owner in _HOST_MODULES:
            return "host"
        if owner in _TORCH or self._is_from_torch(owner or name):
            return self._of_torch(call, name, given)
        known = self._of_project(call, env)
        if known is not None:
            return known
        return self._of_others(call, name, receiver, given)

    def _of_torch(self, call: ast.Call, name: str, given: list[Kind]) -> Kind:
        if name in _MAKERS:
            place = next((one.value for one in call.keywords if one.arg == "device"), None)
            if place is None:
                return "host"
            return "host" if isinstance(place, ast.Constant) and str(place.value).startswith("cpu") else "device"
        if name.endswith("_like") or given:
            return joined(*given)
        return None

    def _is_from_torch(self, name: str) -> bool:
        brought = self.function.module.imports.get(name)
        return brought is not None and brought.module.split(".")[0] in ("torch", "einops") and name[:1].islower()

    def _of_project(self, call: ast.Call, env: Kinds) -> Kind:
        """Of a function of the project: what it returns for these arguments."""
        callees = self.project.resolve(call, self.function)
        if not callees or self._depth >= _DEEPEST:
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
            return "graph"
        kinds = given_to(call, callee, self)
        key = (id(callee), tuple(sorted(kinds.items(), key=lambda one: one[0])))
        if key not in self._returns:
            self._returns[key] = None  # while it is being followed: one that calls itself is not
            result = Tensors(self.project, callee, kinds, self._returns, self._depth + 1)
            self._returns[key] = result.returned if result.returns else _nothing(callee)
        return self._returns[key]

    def _of_others(self, call: ast.Call, name: str, receiver: Kind, given: list[Kind]) -> Kind:
        func = call.func
        if isinstance(func, ast.Name):
            if name in _JOINING:
                return joined(*given) if given else "host"
            if _TO_DEVICE.search(name):
                return "device"
        if _LOSS.search(name):
            return "graph"
        if _MODEL.search(name) and name[:1].islower():
            return "graph"
        if isinstance(func, ast.Attribute):
            if receiver in ("graph", "device"):
                return receiver
            if dotted(func).startswith("self.") and ("device" in given or "graph" in given):
                return "graph"  # a part of the model that cannot be followed
            return receiver if receiver == "host" and not given else None
        # What is kept under a name and called with tensors is a model, if it does not go by the name of a count.
        bound = (name in self.function.bindings or name in self._given) and not _COUNTING.search(name)
        return "graph" if bound and ("device" in given or "graph" in given) else None


def _nothing(function: Function) -> Kind:
    """Of a function that returns nothing. One that raises, or does nothing, is made to be overridden."""
    return None if any(isinstance(one, ast.Raise | ast.Pass) for one in function.node.body) else "host"


def given_to(call: ast.Call, callee: Function, tensors: Tensors) -> Kinds:
    """Kinds of a callee's parameters, as one call gives them."""
    if callee.definition is None:
        return {}
    return {name: tensors.of(value) for name, value in passed(call, callee.definition, callee.is_method).items()}
