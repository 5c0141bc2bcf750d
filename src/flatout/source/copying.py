"""Where a training step copies its batch from the host to the device."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from flatout.source.code import Code
from flatout.source.moves import moves_to, uses_device
from flatout.source.nodes import dotted, root_name
from flatout.source.training import Region

_NOT_A_BATCH = re.compile(
    r"model|net\d*$|module|criterion|loss|self$|encoder|decoder|head|backbone|metric|generator|discriminator|optim|ema|torch",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Copy:
    region: Region
    call: ast.Call
    is_non_blocking: bool


def copies_in(code: Code) -> list[Copy]:
    """Copies of what is, or may well be, on the host; what is known to be on the device is not copied."""
    found, seen = [], set()
    for region, _, call in code.calls_each_step("to", "cuda"):
        assert isinstance(call.func, ast.Attribute)
        of = call.func.value
        if id(call) in seen or moves_to(call) != "device" or not uses_device(region.module):
            continue
        kind = code.kinds.of(region).of(of)
        name = dotted(of).split(".")[-1] or root_name(of)
        if kind in ("graph", "device") or _NOT_A_BATCH.search(name) or _is_made_here(of):
            continue
        if kind is None and not dotted(of) and not isinstance(of, ast.Subscript):
            continue  # the result of some call: it may be anything
        seen.add(id(call))
        found.append(Copy(region, call, _is_non_blocking(call, region, code)))
    return found


def _is_made_here(node: ast.expr) -> bool:
    """`torch.tensor(3.0).to(device)`: another problem."""
    return isinstance(node, ast.Call) and dotted(node.func).startswith(("torch.", "np."))


def _is_non_blocking(call: ast.Call, region: Region, code: Code) -> bool:
    for one in call.keywords:
        if one.arg == "non_blocking":
            value = code.values.of(one.value, region.function)
            return value is None or bool(value.value)
        if one.arg is None:
            return True  # it may be among `**settings`
    # `.cuda(device, True)`, `.to(device, dtype, True)`.
    return any(isinstance(one, ast.Constant) and one.value is True for one in call.args[1:])
