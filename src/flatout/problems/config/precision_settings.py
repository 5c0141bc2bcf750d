"""A cudnn, TF32 or AMP setting is configured, but torch runs with another.

What it is: the command line or a config file asks for `cudnn_benchmark`, `cudnn_deterministic`, TF32 or mixed
precision, but torch's own state in the run is another: something else (often a `set_seed`) overrides it, or nothing
reads it.

Why the GPU idles: it does not idle, it takes the slow path: kernels that were not chosen for the shape, or full
precision where the tensor cores would serve.

How it shows in a run: `torch.backends` in the running process, or the dtypes of intermediate results, against the
configured value. The finding has the table "item | configured | live".

How it shows in source: a key, option or field of that name that nothing reads, or that is only stored and printed,
while the code sets torch's switch the other way, or not at all. The finding is reported at the line that overrides it,
else at the setting.

The fix: set it where training begins, after seeding:

    torch.backends.cudnn.benchmark = config.cudnn_benchmark
    torch.backends.cuda.matmul.allow_tf32 = config.allow_tf32

From outside `cudnn.benchmark` makes the first of these hold, with `--allow numeric`.

What to expect: what that setting brings for this model; the findings of the compute family say how much where it can be
told from the run.

When it is fine: the run is meant to be reproducible and the config is not; then change the config.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flatout.problems.config.ignored_settings import Difference, describe, evidence, place
from flatout.problems.found import FoundInRun, FoundInSource, join_words
from flatout.records.evidence import Evidence, Value
from flatout.records.message import Message, message, verbatim
from flatout.records.source import Place, Related
from flatout.source.code import Code
from flatout.source.syntax.module import Module
from flatout.source.training.job_settings import DeclaredSetting, JobSettings

CODE = "CF802"
REMEDY = None
_REDUCED = ("float16", "bfloat16", "half")
_NAMED = {"16": True, "fp16": True, "bf16": True, "float16": True, "bfloat16": True, "16-mixed": True}
_NAMED |= {"bf16-mixed": True, "32": False, "fp32": False, "float32": False, "no": False, "32-true": False}
# What torch knows a setting as; the others are autocast's.
_TORCH_NAMES = {
    "cudnn_benchmark": "torch.backends.cudnn.benchmark",
    "cudnn_deterministic": "torch.backends.cudnn.deterministic",
    "tf32": "torch.backends.cuda.matmul.allow_tf32",
}
_AUTOCAST = ("amp", "precision")


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    # Without a GPU scripts rightly leave all of this alone.
    live = run.live_torch
    if not run.on_gpu or not live:
        return
    known = (_difference(run, name, live) for name in (*_TORCH_NAMES, *_AUTOCAST))
    found = [differs for differs in known if differs is not None]
    if not found:
        return
    changes = list(dict.fromkeys(_change(differs.item, differs.setting.value) for differs in found))
    locations = (differs.setting.location for differs in found)
    yield FoundInRun(
        severity="medium",
        location=next((location for location in locations if location is not None and location.line), None),
        evidence=evidence(found),
        cause=message("cf802.cause", differences=describe(found), place=place(found[0].setting)),
        change=message("cf802.change", change=join_words(changes)),
    )


def _change(name: str, value: object) -> Message:
    if name in _AUTOCAST:
        return message("cf802.autocast")
    return verbatim(f"{_TORCH_NAMES[name]} = {value}" if name in _TORCH_NAMES else "torch.compile(model)")


def _difference(run: Evidence, name: str, live: dict[str, Any]) -> Difference | None:
    configured = run.configured.setting(name)
    wanted = None if configured is None else _switch(name, configured.value)
    is_so = None if wanted is None else _live(name, live, wanted)
    if configured is None or is_so is None or is_so == wanted:
        return None
    return Difference(configured, is_so)


def _switch(name: str, value: Value) -> bool | None:
    if isinstance(value, bool):
        return value
    if name in _AUTOCAST:
        return _NAMED.get(str(value).lower())
    return bool(value) if value in (0, 1) else None


def _live(name: str, live: dict[str, Any], wanted: bool) -> bool | None:
    if name == "cudnn_deterministic" and live.get("deterministic_algorithms"):
        return True
    if name == "tf32":
        known = live.get("matmul_allow_tf32"), live.get("matmul_precision")
        return None if known == (None, None) else bool(known[0]) or known[1] in ("high", "medium")
    if name in _AUTOCAST:
        dtypes: dict[str, float] = live.get("grad_dtypes") or {}
        # Reduced precision that nobody configured is somebody's choice in the code; only the reverse is a loss.
        return None if not dtypes or not wanted else any(kind in _REDUCED for kind in dtypes)
    state = live.get(name)
    return state if isinstance(state, bool) else None


def in_source(code: Code) -> Iterator[FoundInSource]:
    for overruled in find_overruled(code):
        declared, place = overruled.declared, overruled.place
        cause = "cf802.source_unread" if place is None else "cf802.source_overruled"
        change = _change(overruled.name, declared.written)
        yield FoundInSource(
            place=declared.place if place is None else place,
            cause=Message(cause, {"setting": _setting_words(declared)}),
            change=message("cf802.source_change", change=change, setting=declared.written),
            severity="low" if overruled.name == "cudnn_deterministic" and place is None else "medium",
            related=()
            if place is None
            else (Related(declared.place, message("related.set_here", setting=_setting_words(declared))),),
        )


def _setting_words(declared: DeclaredSetting) -> Message:
    if declared.value in (None, False):
        return declared.label
    return message("problems.setting_is", setting=declared.written, value=declared.value)


# Settings for torch's own switches (cudnn, TF32, autocast, compile) that nothing reads.

_HALF_NAMES = {"half", *(name for name, is_half in _NAMED.items() if is_half)}
# Assignments that turn a switch: how the name ends.
_SWITCHES = {name: ".".join(whole.split(".")[-2:]) for name, whole in _TORCH_NAMES.items()}
# Other ways to have it.
_OTHERWISE = {
    "cudnn_deterministic": re.compile(r"use_deterministic_algorithms|deterministic\s*=\s*True"),
    "tf32": re.compile(r"float32_matmul_precision|fp32_precision|allow_tf32"),
    "amp": re.compile(r"autocast|GradScaler|\.half\(|bfloat16|float16|\bapex\b|precision\s*=|use_amp\s*="),
    "compile": re.compile(r"\btorch\.compile\b|(?<!\bre)\.compile\(|\bjit\.script\b"),
}
_OTHERWISE["precision"] = _OTHERWISE["amp"]
# Switches that a launcher's own settings turn as well.
_OF_LAUNCHERS = (*_AUTOCAST, "compile")
SWITCHES = (*_TORCH_NAMES, *_OF_LAUNCHERS)


@dataclass(frozen=True, slots=True)
class Overruled:
    """`place` is where the code sets it the other way, if it does."""

    name: str
    declared: DeclaredSetting
    place: Place | None = None


def find_overruled(code: Code) -> Iterator[Overruled]:
    seen: set[Place] = set()
    for group in code.job_settings:
        for setting in group.declared_as(*SWITCHES):
            found = None if setting.place in seen else _overruling(setting, group)
            if found is not None:
                seen |= {setting.place, *([found.place] if found.place is not None else [])}
                yield found


def _overruling(setting: DeclaredSetting, group: JobSettings) -> Overruled | None:
    name = setting.meaning
    wanted = None if name is None else _asks_for(name, setting)
    if name is None or wanted is None or not group.is_dead(setting):
        return None
    if name in _OF_LAUNCHERS and group.job.is_launched:
        return None
    if name in _SWITCHES:
        turned = list(_find_assignments(_SWITCHES[name], group.modules))
        if turned:
            against = [place for value, place in turned if value is not None and value is not wanted]
            # One that is turned both ways, or by something unknown, may well be right.
            is_overruled = len(against) == len(turned) and (wanted or name == "cudnn_deterministic")
            return Overruled(name, setting, against[0]) if is_overruled else None
    if not wanted:
        return None  # off is how it is without anybody's doing
    if name in _OTHERWISE and group.says(_OTHERWISE[name]):
        return None
    return Overruled(name, setting)


def _asks_for(name: str, setting: DeclaredSetting) -> bool | None:
    """What the setting asks for; a switch on the command line asks to be turned on."""
    if setting.option is not None and setting.option.switch is False:
        return True
    if name == "precision" or isinstance(setting.value, str):
        return True if str(setting.value).lower() in _HALF_NAMES else None
    return bool(setting.value) if isinstance(setting.value, bool) or setting.value in (0, 1) else None


def _find_assignments(ending: str, modules: tuple[Module, ...]) -> Iterator[tuple[bool | None, Place]]:
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
