"""What copies to the device cost, what is left of it when they no longer block, and where a step makes them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flatout.model.edits import AtLeast, Edits, LessDevice, LessHost
from flatout.problems.hot_lines import place_name
from flatout.records.evidence import Evidence
from flatout.records.report import CopySite
from flatout.source.code import Code
from flatout.source.flow.devices import moves_to, uses_device
from flatout.source.project.project import Project
from flatout.source.syntax.module import Function, Module, full_name, own_nodes
from flatout.source.syntax.nodes import (
    FEW_HOPS,
    bound_names,
    called_name,
    dotted_name,
    last_name,
    names_in,
    parameters,
    root_name,
)
from flatout.source.training.loaders import has_device_samples
from flatout.source.training.regions import Region
from flatout.source.training.tensors import ON_DEVICE

# Bytes a millisecond that copies of pinned memory reach over the bus of a card: PCIe 5, 4 or 3 with 16 lanes. 55 GB/s
# were measured on an H200. The run's own bus is not measured.
_BUS = (
    (re.compile(r"\b(H100|H200|H800|H20|B100|B200|B300|RTX PRO \d000|RTX 50\d0)\b"), 55e6),
    (re.compile(r"\b(A100|A800|A30|A10G?|A40|A16|A2|L4|L40S?|RTX A\d000|RTX \d000 Ada|RTX [34]0\d0)\b"), 25e6),
)
_SLOWEST_BUS = 12e6
# What the loader's pinning thread copies from shared into pinned memory: measured on a host with an H200, with batches
# of 40 to 105 MiB. For large batches that is slower than the driver's own copy of pageable memory.
_PINNING_BYTES_PER_MS = 2.4e6
# Enqueueing a copy takes the host about this long, whatever its size.
_ASKING_MS = 0.01
_SMALL_BYTES = 64 << 10
_EVALUATING = re.compile(r"eval|valid|test|infer|predict|checkpoint|load", re.I)


def training_copies(run: Evidence) -> list[CopySite]:
    """Of the training step, the dearest first."""
    found = [site for site in run.report.copies if site.per_step > 0 and not _EVALUATING.search(site.function)]
    return sorted(found, key=lambda site: -site.ms)


def is_small(site: CopySite) -> bool:
    return site.bytes_per_step / max(site.per_step, 1e-9) < _SMALL_BYTES


def moving_ms(run: Evidence, size: float) -> float:
    """What the bus takes for so many bytes of pinned memory, by the kind of card."""
    name = run.report.run.device
    return size / next((rate for pattern, rate in _BUS if pattern.search(name)), _SLOWEST_BUS)


def pinned_part(sites: Sequence[CopySite]) -> float:
    """By bytes."""
    total = sum(site.bytes_per_step for site in sites)
    return sum(site.pinned_share * site.bytes_per_step for site in sites) / total if total else 0.0


def unblocked_part(sites: Sequence[CopySite]) -> float:
    total = sum(site.bytes_per_step for site in sites)
    return sum(site.non_blocking_share * site.bytes_per_step for site in sites) / total if total else 0.0


def blocked_ms(run: Evidence, sites: Sequence[CopySite]) -> float:
    """What these copies hold the host up in a step: never more than the phase, which leaves evaluations out."""
    held_ms = min(sum(site.ms for site in sites), run.phase("h2d").ms)
    return max(0.0, held_ms - _ASKING_MS * sum(site.per_step for site in sites))


def unblock(run: Evidence, sites: Sequence[CopySite], to_pin: bool) -> Edits:
    """The host no longer waits for the copies; they still take their time of the device's queue.

    `to_pin`: a thread of the loader's has to pin them first, and no step is shorter than that.
    """
    held_ms = blocked_ms(run, sites)
    bytes_ = sum(site.bytes_per_step for site in sites)
    pinning_ms = bytes_ / _PINNING_BYTES_PER_MS if to_pin else 0.0
    unblocked = (LessHost(held_ms, "h2d", is_sampled=False), LessDevice(-moving_ms(run, bytes_)))
    return Edits((*unblocked, AtLeast(pinning_ms)) if to_pin else unblocked)


def mib_per_step(sites: Sequence[CopySite]) -> float:
    return sum(site.bytes_per_step for site in sites) / 2**20


def list_sites(sites: Sequence[CopySite]) -> str:
    """The dearest of them: where, how often, how much."""
    return ", ".join(
        f"{place_name(s.location)} {s.per_step:.3g}x {s.bytes_per_step / 2**20:.3g} MiB" for s in sites[:4]
    )


# In source: where a training step copies its batch from the host to the device.


_NOT_A_BATCH = re.compile(
    r"model|net\d*$|module|criterion|loss|self$|encoder|decoder|head|backbone|metric|generator|discriminator|optim|ema|torch",
    re.I,
)
_SHAPING = {
    "squeeze", "unsqueeze", "view", "reshape", "flatten", "permute", "transpose", "t", "contiguous", "float", "long",
    "int", "half", "bool", "double", "type", "pin_memory", "detach",
}  # fmt: skip
_WHOLE_BATCH = re.compile(r"^(batch|data|inputs?|enc\w*|tok\w*|features|graph|g|sample)s?$", re.I)
_FRAMEWORK = re.compile(r"\b(accelerator|fabric)\b")
_BATCH_CLASSES = re.compile(r"\b(transformers|tokenizers|dgl|allennlp|torchtext|pytorch3d)\b")


@dataclass(frozen=True, slots=True)
class BatchCopy:
    region: Region
    call: ast.Call
    is_non_blocking: bool
    # What is copied is what the loader gave, which it may have pinned.
    is_unchanged_since_load: bool


def find_copies(code: Code) -> list[BatchCopy]:
    """Copies of what is, or may well be, on the host; what is known to be on the device is not copied."""
    found, seen = [], set()
    there = {id(loader.function) for loader in code.loaders if has_device_samples(loader, code.project)}
    for region, call in (*((where, call) for where, _, call in code.calls_each_step("to", "cuda")), *_in_lambdas(code)):
        if not isinstance(call.func, ast.Attribute) or id(region.root.function) in there:
            continue  # a function of that name; or the loader's samples are on the device already
        # Without what only shapes it: `batch["image"]` of `batch["image"].squeeze(0).float()`.
        of = call.func.value
        while isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute) and of.func.attr in _SHAPING:
            of = of.func.value
        if id(call) in seen or moves_to(call) != "device" or not uses_device(region.module):
            continue
        kind = code.tensors.of(region).of(of)
        name = last_name(of) or root_name(of)
        if kind in ON_DEVICE or _NOT_A_BATCH.search(name) or _is_made_here(of, region):
            continue
        if kind is None and not dotted_name(of) and not isinstance(of, ast.Subscript) and not _is_next(of, region):
            continue  # the result of some call: it may be anything
        as_loaded = is_unchanged_since_load(_moved_value(call, region, code), region.function, code.project)
        copy = BatchCopy(region, call, _is_non_blocking(call, region, code), as_loaded)
        if _has_a_name_of_its_class(copy, code):
            continue  # a batch of the project's own: what that copies is seen there
        seen.add(id(call))
        found.append(copy)
    return found


def _moved_value(call: ast.Call, region: Region, code: Code) -> ast.expr:
    """`x` of `x.cuda()`, and of `utils.cuda(x)`."""
    assert isinstance(call.func, ast.Attribute)
    of = call.func.value
    by_function = isinstance(of, ast.Name) and isinstance(code.project.lookup(of.id, region.function), Module)
    return call.args[0] if by_function and call.args else of


def _in_lambdas(code: Code) -> Iterator[tuple[Region, ast.Call]]:
    """`tree_map(lambda x: x.to(device), batch)`: what is done to each part of a batch."""
    for region, point in code.each_step():
        given = point.node.args if isinstance(point.node, ast.Call) else ()
        for function in given:
            if not isinstance(function, ast.Lambda) or len(given) < 2:
                continue
            others = [code.tensors.of(region).of(other) for other in given if other is not function]
            names = {arg.arg for arg in function.args.args}
            for call in ast.walk(function.body):
                if (
                    isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Attribute)
                    and root_name(call.func.value) in names
                    and not {"graph", "device"} & set(others)
                ):
                    yield region, call


def _has_a_name_of_its_class(copy: BatchCopy, code: Code) -> bool:
    """`interaction.to(device)`, where a class `Interaction` has a `to` of its own that knows no options."""
    assert isinstance(copy.call.func, ast.Attribute)
    of = copy.call.func.value
    if not isinstance(of, ast.Name) or not takes_no_options(copy, code):
        return False
    own = [cls.name.lower() for m in code.project.modules if "def to(" in m.text for cls in m.classes.values()]
    return of.id.lower().rstrip("s") in own


def takes_no_options(copy: BatchCopy, code: Code) -> bool:
    """A class of the project has a `to` of its own that knows no `non_blocking`, and this may be one of its objects."""
    assert isinstance(copy.call.func, ast.Attribute)
    of, name = copy.call.func.value, copy.call.func.attr
    meant = code.project.class_of(of, copy.region.function)
    classes = [
        cls for module in code.project.modules if f"def {name}(" in module.text for cls in module.classes.values()
    ]
    own = [cls.methods[name].definition for cls in ([meant] if meant is not None else classes) if name in cls.methods]
    return any(
        method is not None and method.args.kwarg is None and "non_blocking" not in parameters(method) for method in own
    )


def may_be_no_tensor(copy: BatchCopy) -> bool:
    """A whole batch, as tokenizers give it: older versions of its class cannot be told not to block."""
    assert isinstance(copy.call.func, ast.Attribute)
    of = copy.call.func.value
    return (
        isinstance(of, ast.Name)
        and bool(_WHOLE_BATCH.search(of.id))
        and bool(_BATCH_CLASSES.search(copy.region.module.text))
    )


def _is_made_here(node: ast.expr, region: Region) -> bool:
    """`torch.tensor(3.0).to(device)`, in one or two lines: no loader can pin that, it is another problem."""
    made = region.function.bindings.get(node.id, []) if isinstance(node, ast.Name) else [node]
    return any(isinstance(call, ast.Call) and dotted_name(call.func).startswith(("torch.", "np.")) for call in made)


def _is_next(node: ast.expr, region: Region) -> bool:
    """`next(loader).cuda()`, unless a framework has moved it already."""
    is_next = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "next"
    return is_next and not _FRAMEWORK.search(region.module.text)


def _is_non_blocking(call: ast.Call, region: Region, code: Code) -> bool:
    for keyword in call.keywords:
        if keyword.arg == "non_blocking":
            value = code.values.of(keyword.value, region.function)
            return value is None or bool(value.value)
        if keyword.arg is None:
            return True  # it may be among `**settings`
    # `.cuda(device, True)`, `.to(device, dtype, True)`.
    return any(isinstance(given, ast.Constant) and given.value is True for given in call.args[1:])


# Is what a training step copies still as its loader gave it? What the step makes, converts or cuts no loader pins.

# Show the same memory another way, or hand on what they are given.
_VIEWING = {
    "squeeze", "unsqueeze", "view", "flatten", "contiguous", "detach", "requires_grad_", "pin_memory", "get", "pop",
    "items", "values", "to_dict", "data", "Variable", "next", "iter", "enumerate", "tqdm", "list", "tuple", "dict",
    "zip", "islice", "track", "reshape",
}  # fmt: skip
# Give a new tensor, or one whose rows do not lie together: that is copied by way of new memory.
_CHANGING = {
    "float", "long", "int", "half", "bool", "double", "type", "type_as", "permute", "transpose", "t", "clone", "repeat",
    "expand", "narrow", "flip", "roll", "sum", "mean", "abs", "clamp", "sort", "gather", "sample",
}  # fmt: skip
_FETCHING = re.compile(r"next|batch|fetch|load|iter|queue|prefetch|unpack|collate|data", re.I)


def is_unchanged_since_load(node: ast.expr, function: Function, project: Project) -> bool:
    """False where the step has certainly, or as likely as not, made it itself."""
    return not _Made(function, project, node.lineno).is_made(node, 0, frozenset())


class _Made:
    """What one function makes before a line."""

    def __init__(self, function: Function, project: Project, before: int) -> None:
        self.function = function
        self.project = project
        self.before = before

    def is_made(self, node: ast.expr, depth: int, seen: frozenset[str]) -> bool:
        if depth > FEW_HOPS:
            return False
        if isinstance(node, ast.Name):
            return node.id not in seen and self._is_named(node.id, depth, seen | {node.id})
        if isinstance(node, ast.Call):
            return self._is_called(node, depth, seen)
        if isinstance(node, ast.Subscript):
            return _leaves_gaps(node) or self.is_made(node.value, depth + 1, seen)
        if isinstance(node, ast.Attribute):
            return self.is_made(node.value, depth + 1, seen)
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self.is_made(node.elt, depth + 1, seen)
        if isinstance(node, ast.IfExp):
            return self.is_made(node.body, depth + 1, seen) or self.is_made(node.orelse, depth + 1, seen)
        return isinstance(node, ast.BinOp | ast.Compare)

    def _is_named(self, name: str, depth: int, seen: frozenset[str]) -> bool:
        since, over = self._gone_over(name)
        known = [value for value in self.function.bindings.get(name, ()) if since <= value.lineno < self.before]
        # `x = x.to(device)` is the copy itself.
        values = [
            value
            for value in known
            if not any(isinstance(call, ast.Call) and moves_to(call) == "device" for call in ast.walk(value))
        ]
        return any(self.is_made(value, depth + 1, seen) for value in (*values, *over))

    def _gone_over(self, name: str) -> tuple[int, list[ast.expr]]:
        """What the loop or comprehension goes over that gives the name its value here, and since which line."""
        found: tuple[int, list[ast.expr]] = (0, [])
        for node in own_nodes(self.function):
            if not isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) or name not in bound_names(node.target):
                continue
            until = node.end_lineno or 0 if isinstance(node, ast.stmt) else self.before
            if node.target.lineno <= self.before <= until:
                found = (node.target.lineno, [_counterpart(name, node.target, node.iter)])
        return found

    def _is_called(self, call: ast.Call, depth: int, seen: frozenset[str]) -> bool:
        name, func = called_name(call), call.func
        if name in _VIEWING or moves_to(call) is not None:
            of = (
                func.value
                if isinstance(func, ast.Attribute) and not dotted_name(func.value).startswith("torch")
                else None
            )
            of = of if of is not None and name not in ("next", "Variable") else call.args[0] if call.args else None
            return of is not None and self.is_made(of, depth + 1, seen)
        if name in _CHANGING:
            return True
        if _FETCHING.search(dotted_name(func)) or not (call.args or call.keywords):
            return False
        if full_name(func, self.function.module).split(".")[0] in ("torch", "np", "numpy") or name.endswith("Tensor"):
            return True
        if name[:1].isupper():
            return False  # an object that goes over a loader, and shows how far it is
        callees = self.project.resolve(call, self.function)
        # Of a function of the project: does it compute, or only sort out what it is given?
        return not callees or any(_computes(callee) for callee in callees)


def _computes(function: Function) -> bool:
    plain = function.definition
    returned = [value for value in function.returned() if value is not None]
    made = {name for value in returned for name in names_in(value)}
    values = [*returned, *(value for name in made for value in function.bindings.get(name, ()))]
    if plain is None:
        return False
    if any(isinstance(node, ast.Subscript) and _leaves_gaps(node) for node in own_nodes(function)):
        return True
    return any(
        isinstance(part, ast.BinOp)
        or (isinstance(part, ast.Call) and (root_name(part.func) in ("torch", "np") or called_name(part) in _CHANGING))
        for value in values
        for part in ast.walk(value)
    )


def _leaves_gaps(node: ast.Subscript) -> bool:
    """`x[:, 0]` does; `x[0]`, `x[:8]` and `batch["x"]` do not."""
    return isinstance(node.slice, ast.Tuple) and any(isinstance(element, ast.Slice) for element in node.slice.elts)


def _counterpart(name: str, target: ast.expr, over: ast.expr) -> ast.expr:
    """Which of `zip(views, encoders)` the name goes over."""
    if isinstance(target, ast.Tuple) and isinstance(over, ast.Call):
        if called_name(over) == "zip" and len(target.elts) == len(over.args):
            return next(
                (part for element, part in zip(target.elts, over.args, strict=True) if name in bound_names(element)),
                over,
            )
        if called_name(over) == "enumerate" and over.args and len(target.elts) == 2:
            return _counterpart(name, target.elts[1], over.args[0])
    return over
