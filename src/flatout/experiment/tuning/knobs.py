"""Reads `--knob NAME=VALUES`: a remedy, a flag of the script (`--window=8,7,6`) or a key of a config file.

Values are separated by commas that stand outside brackets and quotes; `8..64` are the whole numbers from 8 to 64, and
`8..64..8` every eighth of them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flatout.errors import FlatoutError
from flatout.experiment.tuning.configs import check_config
from flatout.launch.profile import read_profile
from flatout.records.tune import Knob
from flatout.remedies.catalogue import known, traits_of
from flatout.source.syntax.config_files import CONFIG_SUFFIXES, torch_setting

AUTO, _WORST = "auto", "training"
_HOW = "write it as batch_size=4,8,16 or '--window=8,7,6' or 'config.yaml:MODEL.DEPTH=2,4'"
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(\d+))?")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?")
_OPENING, _CLOSING, _QUOTES = "([{", ")]}", "\"'"
_MOST_VALUES = 10_000


def parse_knob(word: str) -> Knob:
    """A knob as the user wrote it, its class the worst. Raises FlatoutError where it cannot be understood."""
    name, equals, text = word.partition("=")
    name = name.strip()
    if not name or not equals:
        raise FlatoutError(f"--knob {word!r}: {_HOW}")
    values = tuple(_parse_values(word, text))
    if not values:
        raise FlatoutError(f"--knob {word!r} has no values: {_HOW}")
    double = next((value for at, value in enumerate(values) if value in values[:at]), None)
    if double is not None:
        raise FlatoutError(f"--knob {word!r} names the value {double!r} twice; name it once")
    if name.startswith("-"):
        return Knob(name, "flag", name, values, _WORST)
    file, colon, key = name.rpartition(":")
    if colon:
        if not file.lower().endswith(CONFIG_SUFFIXES) or not key.strip():
            raise FlatoutError(f"--knob {word!r}: {file!r} is no config file ({', '.join(CONFIG_SUFFIXES)}) with a key")
        return Knob(name, "config", key.strip(), values, _WORST, file)
    return Knob(name, "remedy", name, values, _WORST)


def distinct(knobs: Iterable[Knob]) -> tuple[Knob, ...]:
    """All of them; two that turn the same thing are a mistake."""
    found: dict[tuple[str, str], Knob] = {}
    for knob in knobs:
        place = (knob.file, knob.target)
        if place in found:
            raise FlatoutError(f"--knob {knob.name} is given twice; put all its values into one")
        found[place] = knob
    return tuple(found.values())


def _parse_values(word: str, text: str) -> Iterator[Any]:
    for part in _split(word, text):
        if found := _RANGE.fullmatch(part):
            yield from _range(word, *found.groups())
        else:
            yield _value(part)


def _range(word: str, first: str, last: str, step: str | None) -> range:
    numbers = range(int(first), int(last) + 1, max(1, int(step or 1)))
    if not numbers or len(numbers) > _MOST_VALUES:
        raise FlatoutError(f"--knob {word!r}: {first}..{last} must go upwards and hold at most {_MOST_VALUES:,} values")
    return numbers


def _value(text: str) -> Any:
    """A number where it would be written back as it stands; all else stays as the user wrote it."""
    found = _NUMBER.fullmatch(text)
    if found is None or len(text) > 15:
        return text
    number = float(text) if found.group(1) else int(text)
    return number if str(number) == text else text


def _split(word: str, text: str) -> list[str]:
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in _QUOTES:
            quote = sign
        elif sign in _OPENING:
            depth += 1
        elif sign in _CLOSING:
            depth -= 1
        if sign == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    if depth or quote:
        raise FlatoutError(f"--knob {word!r}: a bracket or quote is not closed")
    stripped = [part.strip() for part in parts]
    if not all(stripped):
        raise FlatoutError(f"--knob {word!r}: there is an empty value between its commas")
    return stripped


# What was written, checked against the remedies, the command and its config files.

_LOSSLESS = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers")
_NUMERIC = ("amp", "precision", "tf32", "compile", "cudnn_benchmark")


def read_knobs(words: Sequence[str], command: Sequence[str], cwd: Path) -> tuple[Knob, ...]:
    """Raises FlatoutError with the first mistake."""
    if not words:
        raise FlatoutError("nothing to tune: give a knob, as --knob workers=auto or --knob batch_size=4,8,16")
    return distinct(_knob(parse_knob(word), command, cwd, is_alone=len(words) == 1) for word in words)


def remedies_for(knob: Knob, value: Any) -> dict[str, Any]:
    """What a value of a remedy's knob asks for; nothing where it stands for the script as it is."""
    traits = traits_of(knob.target).knob
    wanted = value if value is False or traits is None else traits.value_of(knob.name, value)
    return {} if wanted is False else {knob.target: wanted}


def _aliases() -> dict[str, str]:
    """Remedies by the names that people know."""
    return {
        alias: remedy.id
        for remedy in known().values()
        if remedy.traits.knob is not None
        for alias in remedy.traits.knob.aliases
    }


def _knob(written: Knob, command: Sequence[str], cwd: Path, is_alone: bool) -> Knob:
    if written.kind == "config":
        return _config(written, command, cwd)
    if written.kind == "flag" or names_override(command, written.name):
        if written.values == (AUTO,):
            raise _no_auto(written)
        found = torch_setting(tuple(written.name.lstrip("-").split(".")), on_command_line=True) or ""
        return replace(written, kind="flag", safety=_safety(found), meaning=found)
    return _remedy(written, is_alone)


def _config(written: Knob, command: Sequence[str], cwd: Path) -> Knob:
    if not names_file(command, written.file):
        raise FlatoutError(
            f"--knob {written.name}: the command does not name {written.file!r}, so a copy of it could not be handed "
            "over; write it as in the command"
        )
    check_config(cwd / written.file, written.target, written.values)
    found = torch_setting(tuple(written.target.split("."))) or ""
    return replace(written, safety=_safety(found), meaning=found)


def _remedy(written: Knob, is_alone: bool) -> Knob:
    target = _aliases().get(written.name, written.name)
    if target not in known():
        names = ", ".join(sorted({*known(), *_aliases()}))
        raise FlatoutError(f"--knob {written.name}: no remedy is called so (flags begin with --); there are {names}")
    traits = traits_of(target).knob
    if written.values != (AUTO,):
        values = tuple(_switch(value) for value in written.values)
    elif traits is not None:
        values = traits.auto(is_alone)
    else:
        raise _no_auto(written)
    setting = "" if traits is None else traits.setting
    # A batch size that is found is so many times the script's own, which is what the remedy's own name means.
    name = target if written.name == setting == "batch_size" and written.values == (AUTO,) else written.name
    knob = Knob(name, "remedy", target, values, known()[target].safety, meaning=setting)
    for value in values:
        try:
            read_profile(None, remedies_for(knob, value))
        except FlatoutError as error:
            raise FlatoutError(f"--knob {written.name}: {error}") from None
    return knob


def _no_auto(knob: Knob) -> FlatoutError:
    return FlatoutError(f"--knob {knob.name}=auto: only workers, prefetch and batch_size find their own values")


def _switch(value: Any) -> Any:
    """`true`, `off` and the like are switches; numbers stay numbers."""
    words = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


def _safety(found: str) -> str:
    """Of a flag or a key by what it is known to set; anything else may change what is learnt."""
    return "lossless" if found in _LOSSLESS else "numeric" if found in _NUMERIC else _WORST


# The user's command with other words: a flag's value, or a copy in the place of a config file.

# Values of a flag that has none of its own: whether it stands there.
PRESENT, ABSENT = "present", "absent"
_LAUNCHERS = ("torch.distributed.", "accelerate.", "deepspeed.")
_NEGATIVE = re.compile(r"-\.?\d")


def with_flag(command: Sequence[str], flag: str, value: Any) -> tuple[str, ...]:
    """`--window 8` and `--window=8` get the value, wherever they stand; else the flag is appended.

    A flag without dashes is one of the form `model.depth=4`. PRESENT and ABSENT are for a bare switch. A value of
    several words takes the place of all that follow the flag up to the next one.
    """
    begin = _begin_of_script(command)
    own, words = list(command[:begin]), list(command[begin:])
    if not flag.startswith("-"):
        changed = [f"{_key(word)}={value}" if _key(word).lstrip("+") == flag else word for word in words]
        return (*own, *(changed if names_override(command, flag) else [*words, f"{flag}={value}"]))
    at = next((n for n, word in enumerate(words) if word == flag or word.startswith(f"{flag}=")), None)
    if value in (PRESENT, ABSENT):
        without = [word for word in words if word != flag]
        is_there = value == PRESENT
        return (
            *own,
            *(words if is_there and flag in words else without),
            *((flag,) if is_there and at is None else ()),
        )
    parts = shlex.split(str(value)) if " " in str(value) else [str(value)]
    if at is None:
        return (*own, *words, flag, *parts)
    if words[at] != flag:
        return (*own, *words[:at], f"{flag}={value}", *words[at + 1 :])
    end = _end_of_values(words, at + 1) if len(parts) > 1 else min(at + 2, _end_of_values(words, at + 1))
    return (*own, *words[: at + 1], *parts, *words[end:])


def with_files(command: Sequence[str], copies: Mapping[str, str]) -> tuple[str, ...]:
    """Words that name a file, alone or behind an equals sign, name its copy instead."""

    def changed(word: str) -> str:
        option, equals, name = word.partition("=")
        if word in copies:
            return copies[word]
        return f"{option}={copies[name]}" if equals and name in copies else word

    return tuple(changed(word) for word in command)


def names_file(command: Sequence[str], file: str) -> bool:
    return any(word == file or word.partition("=")[2] == file for word in command)


def names_override(command: Sequence[str], key: str) -> bool:
    """Whether a word such as `model.depth=4` sets it."""
    return any(_key(word).lstrip("+") == key and "=" in word for word in command[_begin_of_script(command) :])


def _key(word: str) -> str:
    return word.partition("=")[0]


def _begin_of_script(command: Sequence[str]) -> int:
    """Where the script's own words begin: what stands before belongs to python or a launcher."""
    script = next((at for at, word in enumerate(command) if word.endswith(".py")), None)
    module = next((at for at, word in enumerate(command[:-1]) if word == "-m"), None)
    if module is not None and (script is None or module < script):
        # `python -m torch.distributed.run train.py`: the module is a launcher, and the script comes behind it.
        is_launcher = script is not None and command[module + 1].startswith(_LAUNCHERS)
        return (script or 0) + 1 if is_launcher else module + 2
    return 1 if script is None else script + 1


def _end_of_values(words: Sequence[str], at: int) -> int:
    """The first word from here on that is no value but the next flag."""
    while at < len(words) and (not words[at].startswith("-") or _NEGATIVE.match(words[at])):
        at += 1
    return at
