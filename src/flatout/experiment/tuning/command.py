"""The user's command with other words: a flag's value, or a copy in the place of a config file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

# Values of a flag that has none of its own: whether it stands there.
PRESENT, ABSENT = "present", "absent"
_LAUNCHERS = ("torch.distributed.", "accelerate.", "deepspeed.")
_NUMBER = re.compile(r"-\.?\d")


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
    while at < len(words) and (not words[at].startswith("-") or _NUMBER.match(words[at])):
        at += 1
    return at
