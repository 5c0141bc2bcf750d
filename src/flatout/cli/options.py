"""Where an option's value comes from: flag, then FLATOUT_* variable, then flatout.toml, then pyproject.toml."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from flatout.errors import FlatoutError

Value = str | float | bool
# Every option that may be set outside the command line. The name is the key of the file and, in capitals after
# FLATOUT_, of the environment.
KINDS: dict[str, type] = {
    "out": str,
    "json": str,
    "python": str,
    "name": str,
    "interval": float,
    "telemetry": bool,
    "lines": bool,
    "stages": bool,
    "window": bool,
    "live": bool,
    "quiet": bool,
    "verbose": bool,
}
_PATHS = {"out", "json", "python"}
# Tables of verbs with settings of their own, and the kinds of lists they hold.
SECTIONS: dict[str, tuple[str, ...]] = {"check": ("select", "ignore", "exclude")}
_PROFILE = "remedies"
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}
_UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_WORDS = {str: "text", float: "a number", bool: "true or false"}


def resolve(flags: Mapping[str, Value | None], environ: Mapping[str, str], cwd: Path) -> dict[str, Value]:
    """Every option that is set anywhere, the strongest source winning. `flags` holds None for what was not given."""
    found: dict[str, Value] = {}
    for file, table in _tables(cwd):
        found.update(_checked(file, table))
    found.update(_from_environment(environ))
    found.update({name: value for name, value in flags.items() if value is not None})
    return found


def chosen(**flags: Value | None) -> dict[str, Any]:
    """Of these options, those that are set anywhere."""
    found = resolve(flags, os.environ, Path.cwd())
    return {name: value for name, value in found.items() if name in flags}


def seconds_of(option: str, text: str, unit: str = "") -> float:
    """A time such as 90s, 10m, 12h or 7d; `unit` is meant where none is written. Raises FlatoutError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w|)", text.strip().lower())
    if match is None or not (match[2] or unit):
        raise FlatoutError(f"{option} {text!r} is no time: write 90s, 10m or 1h")
    seconds = float(match[1]) * _UNITS_S[match[2] or unit]
    if seconds <= 0:
        raise FlatoutError(f"{option} must be above 0, got {text!r}")
    return seconds


def section(verb: str, cwd: Path) -> dict[str, list[str]]:
    """The lists of `[tool.flatout.<verb>]`, or of `[<verb>]` in flatout.toml, which is the stronger."""
    found: dict[str, list[str]] = {}
    for file, table in _tables(cwd):
        own = table.get(verb, {})
        if not isinstance(own, dict):
            raise FlatoutError(f"{file}: {verb} must be a table, got {own!r}")
        for key, value in own.items():
            if key not in SECTIONS[verb]:
                raise FlatoutError(f"{file}: unknown key {verb}.{key}; known are {', '.join(SECTIONS[verb])}")
            if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
                raise FlatoutError(f"{file}: {verb}.{key} must be a list of text, got {value!r}")
            found[key] = value
    return found


def _tables(cwd: Path) -> Iterator[tuple[Path, dict[str, object]]]:
    """The weaker file first."""
    pyproject = _nearest(cwd, "pyproject.toml")
    if pyproject:
        tool = _read(pyproject).get("tool", {})
        table = tool.get("flatout", {}) if isinstance(tool, dict) else {}
        if not isinstance(table, dict):
            raise FlatoutError(f"{pyproject}: tool.flatout must be a table, got {table!r}")
        yield pyproject, table
    own = _nearest(cwd, "flatout.toml")
    if own:
        yield own, _read(own)


def _nearest(cwd: Path, name: str) -> Path | None:
    """The file of this name here or above, within the same repository."""
    for folder in (cwd, *cwd.parents):
        if (folder / name).is_file():
            return folder / name
        if (folder / ".git").exists():
            return None
    return None


def _read(file: Path) -> dict[str, object]:
    # Only where there is a file: the import would delay every start of a script.
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FlatoutError(f"{file} cannot be read: {error}") from error


def _checked(file: Path, table: Mapping[str, object]) -> dict[str, Value]:
    result: dict[str, Value] = {}
    for key, value in table.items():
        if key in SECTIONS or key == _PROFILE:
            continue  # read by its own verb, and by `flatout run --with`
        kind = KINDS.get(key)
        if kind is None:
            raise FlatoutError(f"{file}: unknown key {key!r}; known are {', '.join(sorted(KINDS))}")
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise FlatoutError(f"{file}: {key} must be {_WORDS[kind]}, got {value!r}")
        assert isinstance(value, str | float | bool)
        # A path in a file is meant from that file's folder; a bare `python3.12` is a command on PATH, "-" is stdout.
        if key in _PATHS and isinstance(value, str) and value != "-" and (key != "python" or "/" in value):
            value = str(file.parent / Path(value).expanduser())
        result[key] = value
    return result


def _from_environment(environ: Mapping[str, str]) -> dict[str, Value]:
    variables = {key: f"FLATOUT_{key.upper()}" for key in KINDS}
    given = {key: variable for key, variable in variables.items() if environ.get(variable)}
    return {key: _parsed(variable, environ[variable], KINDS[key]) for key, variable in given.items()}


def _parsed(variable: str, text: str, kind: type) -> Value:
    if kind is str:
        return text
    if kind is bool and text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    if kind is float:
        try:
            return float(text)
        except ValueError:
            pass
    raise FlatoutError(f"{variable} must be {_WORDS[kind]}, got {text!r}")


# A verb that starts the user's own command: where our options end and its words begin.


class _UpToTheScript(click.Command):
    """Our options end where the script begins: at the first word, at `--`, or at python's `-m`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = self._end_of_options(args)
        if at < len(args) and args[at].startswith("-m"):
            args = [*args[:at], "--", *args[at:]]
        return super().parse_args(ctx, args)

    def _end_of_options(self, args: list[str]) -> int:
        options = (param for param in self.params if isinstance(param, click.Option))
        valued = {name for option in options if not option.is_flag for name in option.opts}
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] not in ("-", "--") and args[at][:2] != "-m":
            at += 2 if args[at] in valued else 1
        return at


def script_command(options_metavar: str = "[OPTIONS] [--]") -> Callable[[Callable[..., Any]], click.Command]:
    """For a verb that starts the user's own command."""
    settings = {"allow_interspersed_args": False}
    return click.command(cls=_UpToTheScript, context_settings=settings, options_metavar=options_metavar)
