"""The script uses autocast and GradScaler under deprecated names, or apex's amp.

What it is: `torch.cuda.amp.autocast`, `torch.cuda.amp.GradScaler` and the same for the CPU are deprecated since torch
2.4; `torch.amp` has them for every device. NVIDIA's apex, with its levels such as O1 and O2, no longer maintains its
own `amp`.

Why the GPU idles: it does not yet. Each call warns, and a later torch will remove the names. apex's casts are patched
into functions, which a compiler cannot trace.

How it shows in source: an import of these names, a call by their full name, or `amp.initialize` of apex. A file that
chooses between old and new by torch's version is not reported.

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
from dataclasses import dataclass, replace

from flatout.problems.found import FoundInSource
from flatout.records.message import Message, message, verbatim
from flatout.records.source import Edit, Fix, Related
from flatout.source.code import Code
from flatout.source.project.project import Project
from flatout.source.syntax.edits import add_keyword, replace_node
from flatout.source.syntax.module import Import, Module, imported_name
from flatout.source.syntax.nodes import argument, dotted_name

CODE = "CO511"
_OTHER_TYPE = re.compile(r"bfloat16|bf16|set_autocast|get_autocast")
_NATIVE = re.compile(r"torch\.amp\b|torch\.autocast\b|torch\.cuda\.amp\b|cuda import amp")


# Uses of the names that torch.amp took over from torch.cuda.amp and torch.cpu.amp, and how to write them today.

_OLD = re.compile(
    r"^torch\.(cuda|cpu)\.amp(?:\.autocast_mode|\.grad_scaler)?\.(autocast|GradScaler|custom_fwd|custom_bwd)$"
)
_OLD_MODULE = re.compile(r"^torch\.(cuda|cpu)\.amp$")
_NAMES = {"autocast", "GradScaler", "custom_fwd", "custom_bwd"}
# Of the old autocast, by their place: the new one has them in another order.
_PARAMETERS = ("enabled", "dtype", "cache_enabled")
_VERSION = re.compile(r"version|hasattr|TORCH_|torch_(ge|gt|lt|2)|is_torch|_AVAILABLE|available\(")
_MISSING = re.compile(r"ImportError|ModuleNotFoundError|AttributeError|TypeError|Exception|^$")
_ASKED = re.compile(r"isinstance\([^\n]*GradScaler")
_TYPES = (ast.arg, ast.AnnAssign, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Use:
    """`node` is the name as it stands there; `call` is the call of it, or None where it only stands as a decorator."""

    module: Module
    node: ast.expr
    device: str
    name: str
    call: ast.Call | None


@dataclass(frozen=True, slots=True)
class OldAmp:
    """One thing to change: an import with all that it serves, or one use by its full name."""

    module: Module
    node: ast.AST
    uses: tuple[Use, ...]
    # How to write it today; None where that cannot be done without a doubt.
    edits: tuple[Edit, ...] | None


def find_old_amp(project: Project) -> Iterator[OldAmp]:
    is_asked = any(
        _ASKED.search(mentioning.text)
        for mentioning in project.mentioning("GradScaler")
        if "isinstance(" in mentioning.text
    )
    for module in project.modules:
        if "cuda.amp" in module.text or "cpu.amp" in module.text or "import amp" in module.text:
            yield from _in_file(module, project, is_asked)


def _in_file(module: Module, project: Project, is_scaler_asked: bool) -> Iterator[OldAmp]:
    """`is_scaler_asked`: somebody asks a scaler for its class, so it has to stay what it is."""
    nodes = list(ast.walk(module.tree))
    statements = [inner for inner in nodes if isinstance(inner, ast.Import | ast.ImportFrom) and _brings_old(inner)]
    brings = {name: statement for statement in statements for name in _names_of(statement)}
    served: dict[int, list[ast.expr]] = {}
    for chain in nodes:
        # The whole of a chain of names, not the part before one of its dots.
        if not isinstance(chain, ast.Name | ast.Attribute) or not dotted_name(chain):
            continue
        if isinstance(module.parents.get(id(chain)), ast.Attribute):
            continue
        statement = brings.get(dotted_name(chain).split(".")[0])
        if statement is not None:
            served.setdefault(id(statement), []).append(chain)
        elif (use := _use(chain, module)) is not None and not _is_fallback(chain, module):
            is_stuck = module.imports.get("torch") != Import("torch", None) or (
                use.name == "GradScaler" and is_scaler_asked
            )
            yield OldAmp(module, use.call or chain, (use,), None if is_stuck else _rewrite(use, "torch.amp"))
    for statement in statements:
        if not _is_fallback(statement, module):
            old = _of_import(statement, served.get(id(statement), []), module, project)
            is_stuck = is_scaler_asked and any(use.name == "GradScaler" for use in old.uses)
            yield replace(old, edits=None) if is_stuck else old


def _of_import(
    statement: ast.Import | ast.ImportFrom, chains: list[ast.expr], module: Module, project: Project
) -> OldAmp:
    known = [_use(chain, module) for chain in chains]
    uses = tuple(use for use in known if use is not None)
    renamed = _import_edit(statement, module)
    # Names in annotations mean the new class as well as the old one; anything else may depend on which it is.
    is_clear = all(use is not None or _is_annotation(chain, module) for chain, use in zip(chains, known, strict=True))
    rewritten = [_rewrite(use, None) for use in uses]
    if (
        renamed is None
        or not is_clear
        or None in rewritten
        or any(_is_rebound(name, statement, module, project) for name in _names_of(statement))
    ):
        return OldAmp(module, statement, uses, None)
    return OldAmp(module, statement, uses, (renamed, *(edit for edits in rewritten for edit in edits or ())))


def _use(chain: ast.expr, module: Module) -> Use | None:
    """A call of an old name, or its use as a decorator; None for whatever else is done with it."""
    found = _OLD.match(imported_name(chain, module))
    if found is None:
        return None
    parent = module.parents.get(id(chain))
    if isinstance(parent, ast.Call) and parent.func is chain:
        return Use(module, chain, found[1], found[2], parent)
    is_decorator = isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef) and chain in parent.decorator_list
    return Use(module, chain, found[1], found[2], None) if is_decorator and found[2].startswith("custom") else None


# Imports.


def _brings_old(statement: ast.Import | ast.ImportFrom) -> bool:
    """`from torch.cuda.amp import autocast`, `from torch.cuda import amp`, `import torch.cuda.amp as amp`."""
    if isinstance(statement, ast.Import):
        return any(_OLD_MODULE.match(alias.name) and alias.asname for alias in statement.names)
    names = [f"{statement.module}.{alias.name}" for alias in statement.names]
    return not statement.level and any(_OLD.match(name) or _OLD_MODULE.match(name) for name in names)


def _names_of(statement: ast.Import | ast.ImportFrom) -> list[str]:
    return [alias.asname or alias.name for alias in statement.names]


def _import_edit(statement: ast.Import | ast.ImportFrom, module: Module) -> Edit | None:
    """The module's name in the import changed; only where all that it imports has moved."""
    if isinstance(statement, ast.Import):
        old, new = statement.names[0].name, "torch.amp"
        if len(statement.names) > 1:
            return None
    else:
        old = statement.module or ""
        whole = [alias for alias in statement.names if _OLD_MODULE.match(f"{old}.{alias.name}")]
        if len(whole) not in (0, len(statement.names)) or (
            not whole and any(n.name not in _NAMES for n in statement.names)
        ):
            return None
        new = "torch" if whole else "torch.amp"
    line = module.lines[statement.lineno - 1]
    at = line.find(f" {old}", statement.col_offset)
    if at < 0:
        return None
    return Edit(module.at(statement.lineno, at + 2, statement.lineno, at + 2 + len(old)), new)


def _is_rebound(name: str, statement: ast.stmt, module: Module, project: Project) -> bool:
    """Does the name mean something else as well, or do other files have it from here?"""
    if any(name in function.bindings for function in module.functions):
        return True
    same = [
        inner
        for inner in ast.walk(module.tree)
        if isinstance(inner, ast.Import | ast.ImportFrom) and inner is not statement and name in _names_of(inner)
    ]
    if same or module.shown.endswith("__init__.py"):
        return True
    ending = module.name.split(".")[-1]
    return any(
        other is not module
        and ending in other.text
        and (brought := other.imports.get(name)) is not None
        and brought.attribute == name
        and brought.module.split(".")[-1] == ending
        for other in project.mentioning(name)
    )


# Calls.


def _rewrite(use: Use, base: str | None) -> tuple[Edit, ...] | None:
    """The same with the device given, by its full name where a base is given."""
    named = () if base is None else (replace_node(use.module, use.node, f"{base}.{use.name}"),)
    if use.call is None:
        text = dotted_name(use.node) if base is None else f"{base}.{use.name}"
        return (replace_node(use.module, use.node, f'{text}(device_type="{use.device}")'),)
    if use.name.startswith("custom"):
        more = add_keyword(use.module, use.call, f'device_type="{use.device}"')
        return None if more is None else (*named, more)
    given = _with_device_first(use)
    return None if given is None else (*named, *given)


def _with_device_first(use: Use) -> tuple[Edit, ...] | None:
    call, module, device = use.call, use.module, f'"{use.device}"'
    assert call is not None
    if any(isinstance(given, ast.Starred) for given in call.args) or len(call.args) > len(_PARAMETERS) + 2:
        return None
    if not call.args and not call.keywords:
        more = add_keyword(module, call, device)
        return None if more is None else (more,)
    edits = []
    before: ast.AST = call.func
    for at, given in enumerate(call.args):
        # Parentheses around an argument belong to no node: its name would end up inside them.
        if "(" in _between(module, before, given).replace("(", "", 1 if at == 0 else 0):
            return None
        name = f"{_PARAMETERS[at]}=" if use.name == "autocast" and at < len(_PARAMETERS) else ""
        text = (f"{device}, " if at == 0 else "") + name
        if text:
            place = module.place(given)
            edits.append(Edit(module.at(given.lineno, place.column), text))
        before = given
    if not call.args:
        first = call.keywords[0]
        edits.append(Edit(module.at(first.lineno, module.place(first).column), f"{device}, "))
    return tuple(edits)


def _between(module: Module, before: ast.AST, other: ast.AST) -> str:
    begins, ends = module.place(before), module.place(other)
    first, last = int(getattr(before, "end_lineno", 1)), int(getattr(other, "lineno", 1))
    lines = list(module.lines[first - 1 : last])
    lines[-1] = lines[-1][: ends.column - 1]
    lines[0] = lines[0][begins.end_column - 1 :]
    return "\n".join(lines)


# Where it stands.


def _is_annotation(node: ast.AST, module: Module) -> bool:
    for above, below in module.ancestors(node):
        if isinstance(above, _TYPES):
            return below in (getattr(above, "annotation", None), getattr(above, "returns", None))
        if not isinstance(above, ast.expr) or isinstance(above, ast.Call | ast.Lambda):
            break
    return False


def _is_fallback(node: ast.AST, module: Module) -> bool:
    """Chosen by the version of torch, or tried first or last: the file knows of both."""
    for above, _ in module.ancestors(node):
        if isinstance(above, ast.If | ast.IfExp) and _VERSION.search(ast.unparse(above.test)):
            return True
        if isinstance(above, ast.ExceptHandler):
            return True
        if isinstance(above, ast.Try) and isinstance(node, ast.Import | ast.ImportFrom):
            caught = [ast.unparse(handler.type) if handler.type is not None else "" for handler in above.handlers]
            if any(_MISSING.search(name) for name in caught):
                return True
    return False


def in_source(code: Code) -> Iterator[FoundInSource]:
    for old in find_old_amp(code.project):
        first = next(iter(old.uses), None)
        served = old.uses if isinstance(old.node, ast.stmt) else ()
        # Old autocast is float16 unless told; the new one takes what an autocast around it has, and that may be bf16.
        inherits = bool(_OTHER_TYPE.search(old.module.text)) and any(_takes_type_around(use) for use in old.uses)
        yield FoundInSource(
            place=old.module.place(old.node),
            cause=_cause(first),
            change=_change(first),
            severity="low",
            related=tuple(
                Related(old.module.place(use.call or use.node), message("related.uses", name=use.name))
                for use in served
            ),
            fix=None if not old.edits else Fix(message("co511.fix"), old.edits, is_safe=not inherits),
        )
    yield from _of_apex(code)


def _takes_type_around(use: Use) -> bool:
    if use.name != "autocast" or use.call is None:
        return False
    is_off = getattr(argument(use.call, "enabled", 0), "value", None) is False
    return not is_off and argument(use.call, "dtype", 1) is None


def _cause(use: Use | None) -> Message:
    if use is None:
        return message("co511.source_cause_import")
    return message("co511.source_cause", name=f"torch.{use.device}.amp.{use.name}")


def _change(use: Use | None) -> Message:
    if use is None:
        return message("co511.source_change_import")
    if use.name.startswith("custom"):
        return verbatim(f'torch.amp.{use.name}(…, device_type="{use.device}")')
    return verbatim(f'torch.amp.{use.name}("{use.device}", …)')


def _of_apex(code: Code) -> Iterator[FoundInSource]:
    for module in code.project.mentioning("apex"):
        for call, _ in module.calls.get("initialize", ()):
            name = imported_name(call.func, module)
            is_apex = name.startswith("apex.") and name.endswith(".initialize") and "amp" in name
            if is_apex and not _NATIVE.search(module.text):
                yield FoundInSource(
                    place=module.place(call),
                    cause=message("co511.source_cause_apex"),
                    change=message("co511.source_change_apex"),
                    severity="low",
                )
