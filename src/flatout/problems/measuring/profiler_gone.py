"""The script uses a profiler that was removed from torch, or an option that is ignored.

What it is: `torch.utils.bottleneck` was removed (torch 2.13 has no such module). `use_cuda=` of
`torch.profiler.profile` is deprecated and has no effect; that of `torch.autograd.profiler.profile` is deprecated.

Why the GPU idles: for other reasons, which stay unknown: the script fails at the import, or profiles with other
settings than it says.

How it shows in source: an import of the module, a command that starts it (`python -m torch.utils.bottleneck`), or the
keyword in a call.

The fix: `flatout run train.py`, or `torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])`
over a few steps. In autograd's: `use_device="cuda"`.

What to expect: the profile that was intended.

When it is fine: with a torch that is old enough to have them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flatout.problems.found import FoundInSource
from flatout.records.message import message, verbatim
from flatout.records.source import Edit, Fix, Place
from flatout.source.code import Code
from flatout.source.syntax.edits import replace_node
from flatout.source.syntax.module import Module, imported_name

CODE = "MS003"

_GONE = "torch.utils.bottleneck"
_COMMAND = re.compile(r"-m\s+torch\.utils\.bottleneck")
_RUNNERS = {"run", "call", "Popen", "check_call", "check_output", "system", "popen", "getoutput", "getstatusoutput"}


def in_source(code: Code) -> Iterator[FoundInSource]:
    for module in code.project.mentioning("bottleneck"):
        if _GONE in module.text or "torch.utils import" in module.text:
            for node in _bottlenecks(module):
                yield _of_bottleneck(module.place(node))
    for module in code.project.modules:
        for line, command in module.cells.commands if module.cells is not None else ():
            if _COMMAND.search(command):
                yield _of_bottleneck(module.at(line))
    for module in code.project.mentioning("use_cuda"):
        if "profile" in module.text:
            yield from _keywords(module)


def _of_bottleneck(place: Place) -> FoundInSource:
    return FoundInSource(
        place=place,
        cause=message("ms003.source_cause_bottleneck"),
        change=message("ms003.source_change_bottleneck"),
    )


def _bottlenecks(module: Module) -> Iterator[ast.AST]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import) and any(alias.name.startswith(_GONE) for alias in node.names):
            yield node
        elif isinstance(node, ast.ImportFrom) and not node.level:
            base = node.module or ""
            if base.startswith(_GONE) or any(f"{base}.{alias.name}" == _GONE for alias in node.names):
                yield node
    for name in _RUNNERS:
        for call, _ in module.calls.get(name, ()):
            if _starts_it(call):
                yield call


def _starts_it(call: ast.Call) -> bool:
    words = [
        inner.value for inner in ast.walk(call) if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
    ]
    return bool(_COMMAND.search(" ".join(words)))


def _keywords(module: Module) -> Iterator[FoundInSource]:
    for call, _ in module.calls.get("profile", ()):
        given = next((keyword for keyword in call.keywords if keyword.arg == "use_cuda"), None)
        whose = imported_name(call.func, module)
        if given is None:
            continue
        if whose == "torch.profiler.profile":
            yield FoundInSource(
                place=module.place(given),
                cause=message("ms003.source_cause_profile"),
                change=message("ms003.source_change_profile"),
                severity="low",
                fix=_drop_keyword(call, given, module),
            )
        elif whose == "torch.autograd.profiler.profile" and getattr(given.value, "value", True):
            is_plain = isinstance(given.value, ast.Constant) and not any(o.arg == "use_device" for o in call.keywords)
            edit = replace_node(module, given, 'use_device="cuda"')
            yield FoundInSource(
                place=module.place(given),
                cause=message("ms003.source_cause_autograd"),
                change=verbatim('use_device="cuda"'),
                severity="low",
                fix=Fix(verbatim('use_device="cuda"'), (edit,), is_safe=True) if is_plain else None,
            )


def _drop_keyword(call: ast.Call, given: ast.keyword, module: Module) -> Fix | None:
    """Where it is the only argument, or one with a neighbour on its own line."""
    place = module.place(given)
    if len(call.keywords) == 1 and not call.args:
        return Fix(message("fix.drop", code="use_cuda"), (Edit(place, ""),), is_safe=True)
    line = module.lines[given.lineno - 1]
    if given.lineno != given.value.end_lineno:
        return None
    before, behind = line[: place.column - 1], line[place.end_column - 1 :]
    if found := re.match(r",\s*(?=[^\s#])", behind):
        spot = module.at(given.lineno, place.column, given.lineno, place.end_column + found.end())
    elif found := re.search(r",\s*$", before):
        spot = module.at(given.lineno, found.start() + 1, given.lineno, place.end_column)
    else:
        return None
    return Fix(message("fix.drop", code="use_cuda"), (Edit(spot, ""),), is_safe=True)
