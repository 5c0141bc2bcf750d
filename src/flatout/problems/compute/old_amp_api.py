"""Autocast by a name that torch has given up.

What it is: `torch.cuda.amp.autocast`, `torch.cuda.amp.GradScaler` and their like for the CPU are deprecated since torch
2.4; `torch.amp` has them for every device. NVIDIA's apex, where levels such as O1 and O2 come from, has stopped its
own `amp` altogether.

Why the GPU idles: it does not yet. Each call warns, a later torch will not have the names at all, and apex has none of
what native autocast has learned since: its casts are patched into functions, which a compiler cannot follow.

How it shows in source: an import of these names, a call by their full name, or `amp.initialize` of apex. A file that
chooses between old and new by torch's version is left alone.

The fix: `torch.amp.autocast("cuda", …)`, `torch.amp.GradScaler("cuda", …)`; the old autocast's first argument by
position is `enabled`, which becomes a keyword. `custom_fwd` and `custom_bwd` get `device_type="cuda"`. From apex: leave
out `amp.initialize`, run forward and loss under `torch.autocast("cuda", dtype=torch.bfloat16)`.

What to expect: the same numbers in the same time, without the warnings; from apex, native autocast is as fast or
faster, and can be compiled.

When it is fine: a script that has to run with torch before 2.3, which has no `torch.amp.GradScaler`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flatout.problems.cases import SourceCase
from flatout.problems.found import FoundInSource
from flatout.records.source import Fix, Related
from flatout.source.code import Code
from flatout.source.module import Module
from flatout.source.nodes import argument, dotted
from flatout.source.old_amp import Old, Use, old_in

CODE = "CO511"
TITLE = "Autocast by a name that torch has given up"
_OTHER_TYPE = re.compile(r"bfloat16|bf16|set_autocast|get_autocast")
_NATIVE = re.compile(r"torch\.amp\b|torch\.autocast\b|torch\.cuda\.amp\b|cuda import amp")


def in_source(code: Code) -> Iterator[FoundInSource]:
    for old in old_in(code.project):
        use = next(iter(old.uses), None)
        what = "these names of torch.cuda.amp" if use is None else f"torch.{use.device}.amp.{use.name}"
        yield FoundInSource(
            place=old.module.place(old.node),
            cause=f"{what} {'are' if use is None else 'is'} deprecated since torch 2.4",
            change=_change(use),
            severity="low",
            related=_served(old),
            fix=None if not old.edits else Fix("use torch.amp", old.edits, is_safe=_keeps_the_type(old)),
        )
    yield from _of_apex(code)


def _change(use: Use | None) -> str:
    if use is None:
        return 'import them from torch.amp, and name the device: autocast("cuda", …)'
    if use.name.startswith("custom"):
        return f'torch.amp.{use.name}(…, device_type="{use.device}")'
    return f'torch.amp.{use.name}("{use.device}", …)'


def _served(old: Old) -> tuple[Related, ...]:
    if not isinstance(old.node, ast.stmt):
        return ()
    return tuple(Related(old.module.place(one.call or one.node), f"uses {one.name}") for one in old.uses)


def _keeps_the_type(old: Old) -> bool:
    """Old autocast is float16 unless told; the new one takes what an autocast around it has, and that may be bf16."""
    if not _OTHER_TYPE.search(old.module.text):
        return True
    return not any(use.name == "autocast" and not _is_type_plain(use) for use in old.uses)


def _is_type_plain(use: Use) -> bool:
    assert use.call is not None
    enabled = argument(use.call, "enabled", 0)
    is_off = isinstance(enabled, ast.Constant) and enabled.value is False
    return is_off or argument(use.call, "dtype", 1) is not None


def _of_apex(code: Code) -> Iterator[FoundInSource]:
    for module in code.project.mentioning("apex"):
        for call, _ in module.calls.get("initialize", ()):
            if _is_apex_amp(dotted(call.func), module) and not _NATIVE.search(module.text):
                yield FoundInSource(
                    place=module.place(call),
                    cause="apex's amp is no longer maintained; its levels are not those of native autocast",
                    change='with torch.autocast("cuda", dtype=torch.bfloat16): around forward and loss, without apex',
                    severity="low",
                )


def _is_apex_amp(name: str, module: Module) -> bool:
    brought = module.imports.get(name.split(".")[0])
    if brought is None:
        return False
    return brought.module.split(".")[0] == "apex" and name.endswith(".initialize") and "amp" in f"{brought} {name}"


_IMPORTED = """
from torch.cuda.amp import GradScaler, autocast  # found
scaler = GradScaler(enabled=True)
with autocast(use_amp):
    loss = model(x)
"""
_FULL = """
import torch
scaler = torch.cuda.amp.GradScaler()  # found
with torch.cuda.amp.autocast(enabled=True, dtype=torch.float16):  # found
    loss = model(x)
"""
_TRIED = """
import torch
try:
    from torch.amp import autocast
except ImportError:
    from torch.cuda.amp import autocast
if hasattr(torch.amp, "GradScaler"):
    scaler = torch.amp.GradScaler("cuda")
else:
    scaler = torch.cuda.amp.GradScaler()
"""
_FUNCTION = """
from torch.cuda.amp import custom_bwd, custom_fwd  # found

class Double(torch.autograd.Function):
    @staticmethod
    @custom_fwd
    def forward(context, x):
        return 2 * x

    @staticmethod
    @custom_bwd
    def backward(context, gradient):
        return 2 * gradient
"""
_APEX = """
from apex import amp
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")  # found
with amp.scale_loss(loss, optimizer) as scaled:
    scaled.backward()
"""
SOURCE_CASES = (
    SourceCase("finds it at the import", _IMPORTED),
    SourceCase("finds it at each use by its full name", _FULL),
    SourceCase(
        "finds it when the module is imported", "from torch.cuda import amp  # found\nwith amp.autocast():\n    x\n"
    ),
    SourceCase("finds it in a function with a gradient of its own", _FUNCTION),
    SourceCase("finds it when apex casts", _APEX),
    SourceCase("quiet when the file knows of both", _TRIED),
    SourceCase(
        "quiet when torch.amp is used",
        'from torch.amp import autocast\nscaler = torch.amp.GradScaler("cuda")\nwith autocast("cuda"):\n    f()\n',
    ),
    SourceCase(
        "quiet when it is something else", "from torch.cuda import Stream\namp.autocast()\nsound.amp.GradScaler()\n"
    ),
)
