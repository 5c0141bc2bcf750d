"""What a command line sets: `--num-workers 8`, `--num_workers=8`, `data.workers_per_gpu=8`, `--amp`, `--no-amp`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from flatout.records.configured import Setting, Value
from flatout.source.syntax.config_files import CONFIG_SUFFIXES, SWITCH_SETTINGS, torch_setting

_WORDS = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_ASSIGNED = re.compile(r"\+{0,2}(?P<key>[A-Za-z_][\w.]*)=(?P<value>.+)")


def words_of_script(argv: Sequence[str]) -> list[str]:
    """What the script itself was given: what stands before it belongs to python or a launcher."""
    for at, word in enumerate(argv):
        if word.endswith(".py"):
            return list(argv[at + 1 :])
        if word == "-m" and at + 2 <= len(argv) and "python" in PurePath(argv[0]).name:
            return list(argv[at + 2 :])
    return list(argv[1:])


def script_of(argv: Sequence[str]) -> str | None:
    return next((word for word in argv if word.endswith(".py")), None)


def settings(words: Sequence[str]) -> Iterator[Setting]:
    """Those whose meaning is certain."""
    for at, word in enumerate(words):
        following = words[at + 1] if at + 1 < len(words) else None
        for key, text in _assignment(word, following):
            found = _setting(key, text, word)
            if found is not None:
                yield found


def _assignment(word: str, following: str | None) -> Iterator[tuple[str, str | None]]:
    if word.startswith("-") and not _NUMBER.fullmatch(word):
        key, equals, text = word.lstrip("-").partition("=")
        yield key, text if equals else following
    elif match := _ASSIGNED.fullmatch(word):
        yield match["key"], match["value"]


def _setting(key: str, text: str | None, word: str) -> Setting | None:
    name = torch_setting(tuple(key.split(".")), on_command_line=True)
    is_switch = word.startswith("-") and "=" not in word
    if name is None:
        off = torch_setting((key[3:],)) if is_switch and key.startswith(("no-", "no_")) else None
        return Setting(off, word, False) if off in SWITCH_SETTINGS and off is not None else None
    value = None if text is None or text.startswith("--") else scalar(text)
    if (
        name in SWITCH_SETTINGS
        and is_switch
        and not isinstance(value, bool)
        and (value is None or precision_on(value) is None)
    ):
        # A bare switch; the word behind it, if any, is something else.
        return Setting(name, word, bool(value) if value in (0, 1) else True)
    return None if value is None else Setting(name, f"{word} {text}" if is_switch else word, value)


def scalar(text: str) -> Value | None:
    """A value as people write it on a command line."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.fullmatch(text):
        value = float(text)
        return int(value) if value.is_integer() else value
    return text or None


def precision_on(value: object) -> bool | None:
    """Whether a precision by its name is a reduced one; None where the name is not known."""
    text = str(value).lower().replace("_", "-").removesuffix("-mixed").removesuffix("-true")
    if text in ("16", "fp16", "bf16", "float16", "bfloat16", "half"):
        return True
    return False if text in ("32", "64", "fp32", "float32", "no", "none", "full") else None


def config_words(words: Sequence[str]) -> list[str]:
    """Words that name a config file, also behind an equals sign; a file to be written is no config."""
    found = []
    for at, word in enumerate(words):
        before = words[at - 1] if at else ""
        name = word.rpartition("=")[2] if word.startswith("-") and "=" in word else word
        if not name.lower().endswith(CONFIG_SUFFIXES) or name.startswith("-"):
            continue
        option = word.partition("=")[0] if word.startswith("-") else before if before.startswith("-") else ""
        if not option or re.search(r"c(?:onfi|f)g|\bopt\b|^-c$|^-f$|options|param|yaml|settings|file|recipe", option):
            found.append(name)
    return found
