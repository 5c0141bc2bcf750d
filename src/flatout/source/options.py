"""Options of a command line as the code declares them: argparse, absl, click and typer."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from flatout.source.module import Function, Module
from flatout.source.nodes import Def, argument, called_name, dotted, is_open, parameters

_SWITCHES = {"store_true": False, "store_false": True}
_DEFINES = ("DEFINE_integer", "DEFINE_bool", "DEFINE_boolean", "DEFINE_float", "DEFINE_string", "DEFINE_enum")


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """`name` is what the code reads it as, `written` what stands on a command line."""

    name: str
    written: str
    node: ast.Call
    function: Function
    kind: Literal["argparse", "absl", "click"]
    default: ast.expr | None = None
    # What a bare switch is without being given.
    switch: bool | None = None
    # Its default is turned into a number, also where it is written as text.
    is_number: bool = False
    # The function whose parameter it becomes.
    of: Function | None = None


def declares(module: Module) -> bool:
    return "add_argument" in module.text or "DEFINE_" in module.text


def options_in(module: Module) -> Iterator[Option]:
    """All that the text of this file declares by calls; click's are found where the function is."""
    if "add_argument" in module.text:
        for call, function in module.calls.get("add_argument", ()):
            yield from _argparse(call, function)
    if "DEFINE_" in module.text:
        for name in _DEFINES:
            for call, function in module.calls.get(name, ()):
                yield from _absl(call, function)


def set_defaults_in(module: Module) -> Iterator[tuple[str, ast.expr, Function]]:
    """`parser.set_defaults(workers=0)`."""
    if "set_defaults" in module.text:
        for call, function in module.calls.get("set_defaults", ()):
            yield from ((one.arg, one.value, function) for one in call.keywords if one.arg is not None)


def clicked(function: Function) -> Iterator[Option]:
    """Options that click's decorators make parameters of a function."""
    plain = function.definition
    for call in plain.decorator_list if plain is not None else ():
        if isinstance(call, ast.Call) and called_name(call) == "option":
            flags = _words(call.args)
            if flags:
                yield _click(call, flags, function)


def typed_default(default: ast.expr) -> ast.expr | None:
    """What `typer.Option(0)` or pydantic's `Field(0)` stands for; the expression itself otherwise."""
    if isinstance(default, ast.Call) and called_name(default) in ("Option", "Argument", "field", "Field"):
        return argument(default, "default", 0)
    return default


def _argparse(call: ast.Call, function: Function) -> Iterator[Option]:
    flags = _words(call.args)
    if not flags or not isinstance(call.func, ast.Attribute):
        return
    given, action, kind = argument(call, "dest"), argument(call, "action"), argument(call, "type")
    long = next((one for one in flags if one.startswith("--")), flags[0])
    name = str(given.value) if isinstance(given, ast.Constant) else long.lstrip("-").replace("-", "_")
    switch = _SWITCHES.get(str(action.value)) if isinstance(action, ast.Constant) else None
    default = argument(call, "default")
    if is_open(call):
        switch = None  # a default may come with what is handed on
    yield Option(name, max(flags, key=len), call, function, "argparse", default, switch, dotted(kind or call) == "int")


def _absl(call: ast.Call, function: Function) -> Iterator[Option]:
    flags = _words(call.args[:1])
    if flags:
        yield Option(flags[0], f"--{flags[0]}", call, function, "absl", argument(call, "default", 1))


def _click(call: ast.Call, flags: list[str], function: Function) -> Option:
    plain = function.definition
    assert plain is not None
    name = _parameter_of(flags, plain)
    is_flag = argument(call, "is_flag")
    switch = False if isinstance(is_flag, ast.Constant) and is_flag.value else None
    if any("/" in one for one in flags):
        switch = False  # `--amp/--no-amp` without a default
    written = max(flags, key=len).split("/")[0]
    return Option(name, written, call, function, "click", argument(call, "default"), switch, of=function)


def _parameter_of(flags: list[str], plain: Def) -> str:
    """click takes a plain word as the parameter's name, else the longest flag."""
    plainly = [one for one in flags if not one.startswith("-")]
    name = plainly[0] if plainly else max((one.split("/")[0] for one in flags), key=len)
    name = name.lstrip("-").replace("-", "_").lower()
    return next((one for one in parameters(plain) if one.lower() == name), name)


def _words(nodes: Sequence[ast.expr]) -> list[str]:
    return [one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)]
