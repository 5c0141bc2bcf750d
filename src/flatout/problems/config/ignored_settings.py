"""Settings that the user made, or can make, and that never arrived. Shared by the problems of config."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flatout.records.evidence import Setting, Value
from flatout.records.message import Message, message, verbatim
from flatout.source.code import Code
from flatout.source.flow.values import Values
from flatout.source.project.settings import is_settings_name
from flatout.source.syntax.config_files import torch_setting
from flatout.source.syntax.module import Function
from flatout.source.syntax.nodes import is_call
from flatout.source.training.job_settings import DeclaredSetting, JobSettings
from flatout.source.training.loaders import Loader, accepts_setting, loader_argument, loader_setting
from flatout.source.training.loaders import Setting as LoaderSetting
from flatout.words import english

# Settings with torch's defaults.
_DEFAULTS: dict[str, Any] = {
    "num_workers": 0,
    "batch_size": 1,
    "prefetch_factor": 2,
    "pin_memory": False,
    "persistent_workers": False,
}
# Settings without effect if there are no workers.
_OF_WORKERS = ("prefetch_factor", "persistent_workers")
_MOST_PLACES = 3


@dataclass(frozen=True, slots=True)
class IgnoredSetting:
    """A setting of a loader, and where it is declared with another value."""

    name: str
    value: Any
    # What the call gives for it; None if it gives nothing.
    given: ast.expr | None
    declared: tuple[DeclaredSetting, ...]
    # An expression for the declared value where the loader is made, if there is one.
    handed: str | None = None

    @property
    def is_cheaper(self) -> bool:
        """Is the declared value lower than the loader's, so that nothing is lost?"""
        known = [setting.value for setting in self.declared if isinstance(setting.value, int)]
        return bool(known) and isinstance(self.value, int) and max(known) < self.value


@dataclass(frozen=True, slots=True)
class IgnoredSettings:
    loader: Loader
    missed: tuple[IgnoredSetting, ...]
    # Other loaders with the same numbers in their calls.
    alike: tuple[Loader, ...] = ()


def find_ignored_settings(code: Code) -> Iterator[IgnoredSettings]:
    """Each loader once; one that two trainings share with the first of them."""
    seen: set[int] = set()
    for group in code.job_settings:
        fixed = {name: _settings_never_passed(name, group, code.values) for name in _DEFAULTS}
        for loader in group.loaders:
            if not loader.trains or id(loader.call) in seen:
                continue
            found = tuple(
                missed
                for name in _DEFAULTS
                if (missed := _ignored_setting(name, loader, fixed[name], code.values)) is not None
            )
            if found:
                seen.add(id(loader.call))
                yield IgnoredSettings(loader, found, tuple(_loaders_alike(loader, found, group)))


def _settings_never_passed(name: str, group: JobSettings, values: Values) -> tuple[DeclaredSetting, ...]:
    """Declarations of a setting that no training loader gets; none if one of them may get it."""
    for loader in group.loaders:
        state = loader_setting(loader, name, values)
        if loader.trains and (state.state == "unknown" or (state.value is not None and state.value.is_set)):
            return ()
    if not any(loader.trains for loader in group.loaders):
        return ()
    found = group.declared_as(name)
    if any(group.uses.is_used(setting.name) or group.is_handed_on(setting) for setting in found):
        return ()
    return tuple(found)


def _ignored_setting(
    name: str, loader: Loader, declared: tuple[DeclaredSetting, ...], values: Values
) -> IgnoredSetting | None:
    state = loader_setting(loader, name, values)
    if (
        state.state == "unknown"
        or (state.value is not None and state.value.is_set)
        or not _matters(name, loader, values)
        or not accepts_setting(loader, name)
    ):
        return None
    has = _DEFAULTS[name] if state.value is None else state.value.value
    ignored = _ignored_parameter(name, loader, state, values)
    found = [setting for setting in declared if setting.value != has and _is_plausible(name, setting.value)]
    if ignored is not None:
        found.insert(0, ignored)
    if not found:
        return None
    found.sort(
        key=lambda setting: setting.value is None and setting.kind != "parameter"
    )  # those that say a number first
    handed = ignored.name if ignored is not None else _expression_for(found[0], loader.function)
    return IgnoredSetting(name, has, loader_argument(loader, name), tuple(found[:_MOST_PLACES]), handed)


def _matters(name: str, loader: Loader, values: Values) -> bool:
    if name in _OF_WORKERS and loader_setting(loader, "num_workers", values).is_off():
        return False
    size = loader_argument(loader, "batch_size") if name == "batch_size" else None
    if isinstance(size, ast.Constant) and size.value is None:
        return False  # its samples are already batches
    return name != "batch_size" or (
        loader_argument(loader, "batch_sampler") is None and loader_argument(loader, "sampler") is None
    )


def _is_plausible(name: str, value: Any) -> bool:
    """Does a value have the type of the setting? An option without a default may."""
    if value is None:
        return True
    wanted = bool if isinstance(_DEFAULTS[name], bool) else int
    return isinstance(value, wanted) and isinstance(value, bool) == (wanted is bool)


def _ignored_parameter(name: str, loader: Loader, state: LoaderSetting, values: Values) -> DeclaredSetting | None:
    """A parameter of the function that makes the loader which is never read."""
    function = loader.function
    plain = function.definition
    for parameter in function.parameters:
        if torch_setting((parameter,), on_command_line=True) != name or _is_loaded(parameter, function):
            continue
        known = values.of(ast.Name(parameter, ast.Load()), function)
        has = _DEFAULTS[name] if state.value is None else state.value.value
        if known is not None and (known.value == has or known.value is None):
            return None
        assert plain is not None
        node = next(arg for arg in ast.walk(plain.args) if isinstance(arg, ast.arg) and arg.arg == parameter)
        words = message("source.parameter", name=parameter, function=function.name)
        return DeclaredSetting(
            parameter, words, None if known is None else known.value, function.module.place(node), "parameter"
        )
    return None


def _is_loaded(name: str, function: Function) -> bool:
    return any(
        (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load))
        or (is_call(node, "locals", "vars"))
        for node in ast.walk(function.node)
    )


def _expression_for(setting: DeclaredSetting, function: Function) -> str | None:
    """`args.num_workers`, if the options are a variable of the function that makes the loader."""
    if setting.option is None or setting.option.kind != "argparse":
        return None
    names = [*function.parameters, *function.bindings]
    if function.definition is None or not any(is_settings_name(name) for name in names):
        names += list(function.module.body.bindings)
    holding = [name for name in names if is_settings_name(name) and "." not in name and name not in ("c", "params")]
    plainly = [name for name in holding if name in ("args", "opt", "opts", "options")]
    return f"{plainly[0]}.{setting.name}" if plainly else None


def _loaders_alike(loader: Loader, missed: tuple[IgnoredSetting, ...], group: JobSettings) -> Iterator[Loader]:
    for other in group.loaders:
        for ignored in missed:
            given = loader_argument(other, ignored.name)
            if other is not loader and isinstance(given, ast.Constant) and given.value == ignored.value:
                yield other
                break


# In a run: configured against live, item by item.


@dataclass(frozen=True, slots=True)
class Difference:
    setting: Setting
    live: Value

    @property
    def item(self) -> str:
        return self.setting.name


def place(setting: Setting) -> Message:
    """Where it is configured."""
    if setting.location is None:
        return message("config.on_command_line", option=setting.written)
    file = os.path.basename(setting.location.file)
    line = setting.location.line
    return verbatim(f"{file}:{line}" if line else f"{file}: {setting.written}")


def evidence(found: Sequence[Difference]) -> dict[str, float | int | str]:
    """Every item with both values and where the first comes from, and all of them as a table."""
    values: dict[str, float | int | str] = {}
    for differs in found:
        values[f"{differs.item}_configured"] = _as_text(differs.setting.value)
        values[f"{differs.item}_live"] = _as_text(differs.live)
        values[f"{differs.item}_configured_at"] = english(place(differs.setting))
    rows = [f"{differs.item} | {_as_text(differs.setting.value)} | {_as_text(differs.live)}" for differs in found]
    return {**values, "table": "\n".join(["item | configured | live", *rows])}


def describe(found: Sequence[Difference]) -> tuple[Message, ...]:
    return tuple(
        message(
            "config.difference",
            setting=differs.item,
            configured=_as_text(differs.setting.value),
            live=_as_text(differs.live),
        )
        for differs in found
    )


def _as_text(value: Value) -> int | float | str:
    # JSON and tables say true and false in words, so that 1 and true do not look alike.
    return str(value).lower() if isinstance(value, bool) else value
