"""Where a project declares and keeps its settings: classes, options of a command line, config files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Literal

from flatout.source.project.project import Project
from flatout.source.syntax.config_files import ConfigValue, ConfigValues, KeyPath, UncertainConfig, parse_config
from flatout.source.syntax.module import Class, Function, Module
from flatout.source.syntax.nodes import (
    Def,
    argument,
    called_name,
    dotted_name,
    has_decorator,
    has_star_arguments,
    is_call,
    parameters,
    targets_of,
)

_NAMES = re.compile(
    r"^(args?|opts?|options|cfg|conf|config|configs|hparams|hp|params|settings|flags|c|_c)$"
    r"|(cfg|config|args|opt|hparams|params)$",
    re.I,
)
_CLASSES = re.compile(r"(config|configs|args|arguments|options|settings|params|hparams|cfg|flags|opts?)$", re.I)


def is_settings_name(name: str) -> bool:
    """Do variables of this name hold settings, as `args` and `cfg` do?"""
    return bool(_NAMES.search(name))


def is_settings_class(cls: Class) -> bool:
    """A dataclass, or a class with a name such as `TrainConfig`."""
    return is_dataclass(cls) or bool(_CLASSES.search(cls.name))


def is_dataclass(cls: Class) -> bool:
    return has_decorator(cls.node, ("dataclass", "define"))


def field_of(cls: Class, name: str) -> ast.Assign | ast.AnnAssign | None:
    """The statement of the class body that assigns or annotates this name."""
    for node in cls.node.body:
        names = [target.id for target in targets_of(node) if isinstance(target, ast.Name)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in names:
            return node
    return None


def annotation_of(cls: Class, name: str) -> str:
    found = field_of(cls, name)
    return dotted_name(found.annotation) if isinstance(found, ast.AnnAssign) else ""


def find_settings_classes(project: Project, name: str) -> list[Class]:
    """Classes of settings that have a field of this name."""
    return [
        cls
        for module in project.mentioning(name)
        if "class " in module.text
        for cls in module.classes.values()
        if is_settings_class(cls) and field_of(cls, name) is not None
    ]


def find_stores(project: Project, name: str) -> Iterator[tuple[tuple[str, ...], ast.expr, Function]]:
    """Assignments to settings, `args.workers = 4` or `_C.DATALOADER.NUM_WORKERS = 4`: path, value and function."""
    stored = re.compile(rf"\.{re.escape(name)}\s*=[^=]")
    for module in project.mentioning(name):
        if not stored.search(module.text):
            continue
        for function in module.functions:
            for written, values in function.bindings.items():
                parts = written.split(".")
                if len(parts) < 2 or parts[-1] != name:
                    continue
                at = next((n for n, part in enumerate(parts[:-1]) if is_settings_name(part)), None)
                if at is not None:
                    yield from ((tuple(parts[at + 1 :]), value, function) for value in values)


# Options of a command line: argparse, absl, click and typer.

_SWITCHES = {"store_true": False, "store_false": True}
_DEFINES = ("DEFINE_integer", "DEFINE_bool", "DEFINE_boolean", "DEFINE_float", "DEFINE_string", "DEFINE_enum")


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """`name` is what the code reads it as, `written` what one writes on a command line."""

    name: str
    written: str
    node: ast.Call
    function: Function
    kind: Literal["argparse", "absl", "click"]
    default: ast.expr | None = None
    # The value of a switch that is not given.
    switch: bool | None = None
    # `type=int`: the default becomes a number, also if it is written as text.
    is_number: bool = False
    # The function whose parameter it becomes.
    of: Function | None = None


def declares_options(module: Module) -> bool:
    return "add_argument" in module.text or "DEFINE_" in module.text


def find_options(module: Module) -> Iterator[Option]:
    """Options that the file declares by calls; those of click are decorators of functions."""
    if "add_argument" in module.text:
        for call, function in module.calls.get("add_argument", ()):
            yield from _argparse(call, function)
    if "DEFINE_" in module.text:
        for name in _DEFINES:
            for call, function in module.calls.get(name, ()):
                for flag in _string_constants(call.args[:1]):
                    yield Option(flag, f"--{flag}", call, function, "absl", argument(call, "default", 1))


def find_set_defaults(module: Module) -> Iterator[tuple[str, ast.expr, Function]]:
    """`parser.set_defaults(workers=0)`."""
    if "set_defaults" in module.text:
        for call, function in module.calls.get("set_defaults", ()):
            yield from ((keyword.arg, keyword.value, function) for keyword in call.keywords if keyword.arg is not None)


def find_click_options(function: Function) -> Iterator[Option]:
    """Options of click's decorators, which become parameters of the function."""
    plain = function.definition
    for call in plain.decorator_list if plain is not None else ():
        if is_call(call, "option") and (flags := _string_constants(call.args)):
            yield _click(call, flags, function)


def declared_default(default: ast.expr) -> ast.expr | None:
    """The default in `typer.Option(0)` or pydantic's `Field(0)`; any other expression itself."""
    if is_call(default, "Option", "Argument", "field", "Field"):
        return argument(default, "default", 0)
    return default


def _argparse(call: ast.Call, function: Function) -> Iterator[Option]:
    flags = _string_constants(call.args)
    if not flags or not isinstance(call.func, ast.Attribute):
        return
    given, action, kind = argument(call, "dest"), argument(call, "action"), argument(call, "type")
    long = next((flag for flag in flags if flag.startswith("--")), flags[0])
    name = str(given.value) if isinstance(given, ast.Constant) else long.lstrip("-").replace("-", "_")
    switch = _SWITCHES.get(str(action.value)) if isinstance(action, ast.Constant) else None
    default = argument(call, "default")
    if has_star_arguments(call):
        switch = None  # `**kwargs` may hold a default
    yield Option(
        name, max(flags, key=len), call, function, "argparse", default, switch, dotted_name(kind or call) == "int"
    )


def _click(call: ast.Call, flags: list[str], function: Function) -> Option:
    plain = function.definition
    assert plain is not None
    name = _parameter_of(flags, plain)
    is_flag = argument(call, "is_flag")
    switch = False if isinstance(is_flag, ast.Constant) and is_flag.value else None
    if any("/" in flag for flag in flags):
        switch = False  # `--amp/--no-amp` without a default
    written = max(flags, key=len).split("/")[0]
    return Option(name, written, call, function, "click", argument(call, "default"), switch, of=function)


def _parameter_of(flags: list[str], plain: Def) -> str:
    """click names the parameter after a word without dashes, else after the longest flag."""
    plainly = [flag for flag in flags if not flag.startswith("-")]
    name = plainly[0] if plainly else max((flag.split("/")[0] for flag in flags), key=len)
    name = name.lstrip("-").replace("-", "_").lower()
    return next((parameter for parameter in parameters(plain) if parameter.lower() == name), name)


def _string_constants(nodes: Iterable[ast.AST]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


# Config files.

# Lines that a file which only assigns does not have.
_DOING = re.compile(r"\n(?:import|from|def|class|if|for|with|@)\b")
_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
# Functions that load a whole config file.
_LOADING = {
    "load", "safe_load", "full_load", "loads", "fromfile", "from_file", "load_config", "read_config", "get_config",
    "parse_args", "parse_known_args", "parse_config", "parse_args_and_config",
}  # fmt: skip


class ConfigFiles:
    """Config files of a project: their values by path, and which of them a piece of code loads."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def files(self) -> dict[str, ConfigValues]:
        """Values of each file that can be read without running anything."""
        return {file: values for file in self.project.configs if (values := self._parse(file)) is not None}

    @cached_property
    def in_python(self) -> list[tuple[Module, ConfigValues]]:
        """Python files that are configs as mmcv has them: they only assign."""
        assigning = (
            module
            for module in self.project.modules
            if "config" in module.shown.lower() and "dict(" in module.text and not _DOING.search(module.text)
        )
        return [(module, values) for module in assigning if (values := self._parse(module.shown)) is not None]

    def _parse(self, file: str) -> ConfigValues | None:
        try:
            return parse_config(file, self.project.read)
        except UncertainConfig:
            return None

    def at(self, path: KeyPath, named: frozenset[str] = frozenset()) -> list[ConfigValue]:
        """Values whose path ends so, in all files or in those that are named."""
        return [
            leaf
            for file, leaves in self.files.items()
            if not named or file in named
            for key, leaf in leaves.items()
            if key[-len(path) :] == path and leaf.value is not None
        ]

    def named_in(self, node: ast.expr) -> frozenset[str]:
        """The files that an expression names: `yaml.safe_load(open("configs/train.yaml"))`."""
        names = [name for name in _string_constants(ast.walk(node)) if name.endswith(_SUFFIXES)]
        endings = [tuple(part for part in PurePath(name).parts if part not in (".", "..", "/")) for name in names]
        return frozenset(
            file
            for file in self.project.configs
            if any(ending and PurePath(file).parts[-len(ending) :] == ending for ending in endings)
        )


def is_config_load(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and called_name(node) in _LOADING
