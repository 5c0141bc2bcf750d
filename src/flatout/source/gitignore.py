"""Which files git would not look at, and which the user excludes: the patterns of .gitignore."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of a .gitignore, meant from the folder it lies in."""

    base: str
    matches: re.Pattern[str]
    negated: bool
    only_folders: bool


def patterns(lines: Iterable[str], base: Path) -> list[Pattern]:
    found = []
    for line in lines:
        text = line.rstrip("\n").rstrip()
        if not text or text.startswith("#"):
            continue
        negated = text.startswith("!")
        text = text.removeprefix("!")
        only_folders = text.endswith("/")
        text = text.rstrip("/")
        # A slash in the middle or in front ties the pattern to its folder.
        tied = "/" in text
        try:
            expression = re.compile(("" if tied else "(?:.*/)?") + _expression(text.lstrip("/")) + r"\Z")
        except re.error:
            continue  # git would not match it either
        found.append(Pattern(str(base), expression, negated, only_folders))
    return found


def read(folder: Path) -> list[Pattern]:
    """Of the .gitignore of this folder, if there is one."""
    try:
        return patterns((folder / ".gitignore").read_text(encoding="utf-8", errors="replace").splitlines(), folder)
    except OSError:
        return []


def is_ignored(path: str, is_folder: bool, rules: Sequence[Pattern]) -> bool:
    """The last rule that matches decides."""
    for rule in reversed(rules):
        if (is_folder or not rule.only_folders) and path.startswith(rule.base):
            inside = path[len(rule.base) :].lstrip("/")
            if rule.matches.match(inside):
                return not rule.negated
    return False


def _expression(glob: str) -> str:
    parts, at = [], 0
    while at < len(glob):
        char = glob[at]
        if glob.startswith("**/", at):
            parts.append("(?:.*/)?")
            at += 3
            continue
        if glob.startswith("**", at):
            parts.append(".*")
            at += 2
            continue
        if char == "[" and (end := glob.find("]", at + 2)) > 0:
            inside = glob[at + 1 : end]
            parts.append("[" + ("^" + inside[1:] if inside[0] in "!^" else inside).replace("\\", "\\\\") + "]")
            at = end + 1
            continue
        parts.append({"*": "[^/]*", "?": "[^/]"}.get(char) or re.escape(char))
        at += 1
    return "".join(parts)
