"""Settings for torch's own switches (cudnn, TF32, autocast, compile) that nothing reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.records.source import Place
from flatout.source.code import Code
from flatout.source.configured import Declared, Group
from flatout.source.module import Module

_REDUCED = {"16", "fp16", "bf16", "float16", "bfloat16", "half", "16-mixed", "bf16-mixed"}
# Assignments that turn a switch: how the name ends.
_SWITCHES = {
    "cudnn_benchmark": "cudnn.benchmark",
    "cudnn_deterministic": "cudnn.deterministic",
    "tf32": "matmul.allow_tf32",
}
# Other ways to have it.
_OTHERWISE = {
    "cudnn_deterministic": re.compile(r"use_deterministic_algorithms|deterministic\s*=\s*True"),
    "tf32": re.compile(r"float32_matmul_precision|fp32_precision|allow_tf32"),
    "amp": re.compile(r"autocast|GradScaler|\.half\(|bfloat16|float16|\bapex\b|precision\s*=|use_amp\s*="),
    "compile": re.compile(r"\btorch\.compile\b|(?<!\bre)\.compile\(|\bjit\.script\b"),
}
_OTHERWISE["precision"] = _OTHERWISE["amp"]
# Switches that a launcher's own settings turn as well.
_OF_LAUNCHERS = ("amp", "precision", "compile")
NAMES = ("cudnn_benchmark", "cudnn_deterministic", "tf32", "amp", "precision", "compile")


@dataclass(frozen=True, slots=True)
class Overruled:
    """`place` is where the code sets it the other way, if it does."""

    name: str
    declared: Declared
    place: Place | None = None


def overruled_in(code: Code) -> Iterator[Overruled]:
    seen: set[Place] = set()
    for group in code.groups:
        for one in group.declared_as(*NAMES):
            found = None if one.place in seen else _overruled(one, group)
            if found is not None:
                seen |= {one.place, *([found.place] if found.place is not None else [])}
                yield found


def _overruled(one: Declared, group: Group) -> Overruled | None:
    name = one.meaning
    wanted = None if name is None else _wanted(name, one)
    if name is None or wanted is None or not group.is_dead(one):
        return None
    if name in _OF_LAUNCHERS and group.whole.is_launched:
        return None
    if name in _SWITCHES:
        turned = list(_turned(_SWITCHES[name], group.modules))
        if turned:
            against = [place for value, place in turned if value is not None and value is not wanted]
            # One that is turned both ways, or by something unknown, may well be right.
            is_overruled = len(against) == len(turned) and (wanted or name == "cudnn_deterministic")
            return Overruled(name, one, against[0]) if is_overruled else None
    if not wanted:
        return None  # off is how it is without anybody's doing
    if name in _OTHERWISE and group.says(_OTHERWISE[name]):
        return None
    return Overruled(name, one)


def _wanted(name: str, one: Declared) -> bool | None:
    """What the setting asks for; a switch on the command line asks to be turned on."""
    if one.option is not None and one.option.switch is False:
        return True
    if name == "precision" or isinstance(one.value, str):
        return True if str(one.value).lower() in _REDUCED else None
    return bool(one.value) if isinstance(one.value, bool) or one.value in (0, 1) else None


def _turned(ending: str, modules: tuple[Module, ...]) -> Iterator[tuple[bool | None, Place]]:
    """Assignments of the switch: True, False, or None where it depends on something."""
    for module in modules:
        if ending not in module.text:
            continue
        for function in module.functions:
            for name, values in function.bindings.items():
                if name.endswith(ending):
                    for value in values:
                        known = value.value if isinstance(value, ast.Constant) else None
                        yield known if isinstance(known, bool) else None, module.place(value)
