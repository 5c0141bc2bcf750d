"""Where a training step copies its batch from the host to the device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.source.as_loaded import is_as_loaded
from flatout.source.code import Code
from flatout.source.loaders import moves_its_samples
from flatout.source.module import Module
from flatout.source.moves import moves_to, uses_device
from flatout.source.nodes import dotted, parameters, root_name
from flatout.source.training import Region

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
class Copy:
    region: Region
    call: ast.Call
    is_non_blocking: bool
    # What is copied is what the loader gave, which it may have pinned.
    is_as_loaded: bool


def copies_in(code: Code) -> list[Copy]:
    """Copies of what is, or may well be, on the host; what is known to be on the device is not copied."""
    found, seen = [], set()
    there = {id(one.function) for one in code.loaders if moves_its_samples(one, code.project)}
    for region, call in (*((one, call) for one, _, call in code.calls_each_step("to", "cuda")), *_in_lambdas(code)):
        if not isinstance(call.func, ast.Attribute) or id(region.root.function) in there:
            continue  # a function of that name; or the loader's samples are on the device already
        of = _viewed(call.func.value)
        if id(call) in seen or moves_to(call) != "device" or not uses_device(region.module):
            continue
        kind = code.kinds.of(region).of(of)
        name = dotted(of).split(".")[-1] or root_name(of)
        if kind in ("graph", "device") or _NOT_A_BATCH.search(name) or _is_made_here(of, region):
            continue
        if kind is None and not dotted(of) and not isinstance(of, ast.Subscript) and not _is_next(of, region):
            continue  # the result of some call: it may be anything
        as_loaded = is_as_loaded(_moved(call, region, code), region.function, code.project)
        copy = Copy(region, call, _is_non_blocking(call, region, code), as_loaded)
        if _has_a_name_of_its_class(copy, code):
            continue  # a batch of the project's own: what that copies is seen there
        seen.add(id(call))
        found.append(copy)
    return found


def _moved(call: ast.Call, region: Region, code: Code) -> ast.expr:
    """`x` of `x.cuda()`, and of `utils.cuda(x)`."""
    assert isinstance(call.func, ast.Attribute)
    of = call.func.value
    by_function = isinstance(of, ast.Name) and isinstance(code.project.lookup(of.id, region.function), Module)
    return call.args[0] if by_function and call.args else of


def _in_lambdas(code: Code) -> Iterator[tuple[Region, ast.Call]]:
    """`tree_map(lambda x: x.to(device), batch)`: what is done to each part of a batch."""
    for region, turn in code.each_step():
        given = turn.node.args if isinstance(turn.node, ast.Call) else ()
        for one in given:
            if not isinstance(one, ast.Lambda) or len(given) < 2:
                continue
            others = [code.kinds.of(region).of(other) for other in given if other is not one]
            names = {arg.arg for arg in one.args.args}
            for call in ast.walk(one.body):
                if (
                    isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Attribute)
                    and root_name(call.func.value) in names
                    and not {"graph", "device"} & set(others)
                ):
                    yield region, call


def _viewed(node: ast.expr) -> ast.expr:
    """What is copied, without what only shapes it: `batch["image"]` of `batch["image"].squeeze(0).float()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SHAPING:
        node = node.func.value
    return node


def _has_a_name_of_its_class(copy: Copy, code: Code) -> bool:
    """`interaction.to(device)`, where a class `Interaction` has a `to` of its own that knows no options."""
    assert isinstance(copy.call.func, ast.Attribute)
    of = copy.call.func.value
    if not isinstance(of, ast.Name) or not takes_no_options(copy, code):
        return False
    own = [cls.name.lower() for m in code.project.modules if "def to(" in m.text for cls in m.classes.values()]
    return of.id.lower().rstrip("s") in own


def takes_no_options(copy: Copy, code: Code) -> bool:
    """A class of the project has a `to` of its own that knows no `non_blocking`, and this may be one of its objects."""
    assert isinstance(copy.call.func, ast.Attribute)
    of, name = copy.call.func.value, copy.call.func.attr
    meant = code.project.class_of(of, copy.region.function)
    classes = [
        cls for module in code.project.modules if f"def {name}(" in module.text for cls in module.classes.values()
    ]
    own = [cls.methods[name].definition for cls in ([meant] if meant is not None else classes) if name in cls.methods]
    return any(one is not None and one.args.kwarg is None and "non_blocking" not in parameters(one) for one in own)


def may_be_no_tensor(copy: Copy, code: Code) -> bool:
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
    return any(isinstance(one, ast.Call) and dotted(one.func).startswith(("torch.", "np.")) for one in made)


def _is_next(node: ast.expr, region: Region) -> bool:
    """`next(loader).cuda()`, unless a framework has moved it already."""
    is_next = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "next"
    return is_next and not _FRAMEWORK.search(region.module.text)


def _is_non_blocking(call: ast.Call, region: Region, code: Code) -> bool:
    for one in call.keywords:
        if one.arg == "non_blocking":
            value = code.values.of(one.value, region.function)
            return value is None or bool(value.value)
        if one.arg is None:
            return True  # it may be among `**settings`
    # `.cuda(device, True)`, `.to(device, dtype, True)`.
    return any(isinstance(one, ast.Constant) and one.value is True for one in call.args[1:])
