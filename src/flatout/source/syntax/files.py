"""Finds the files of a check and reads them: Python, notebooks and config files, without those that git ignores."""

from __future__ import annotations

import io
import os
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flatout.errors import FlatoutError

CODE = (".py", ".pyw", ".ipynb")
CONFIGS = (".yaml", ".yml", ".json", ".toml")
# Longer files are generated tables, not training code.
LONGEST_BYTES = 2 << 20
_LONGEST_CONFIG_BYTES = 256 << 10
_MOST_CONFIGS = 500
# Folders that never hold the user's own code, whether git ignores them or not.
_NEVER = {
    ".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv", "venv", ".tox", ".nox", ".eggs", ".mypy_cache",
    ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints", ".flatout",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """Files by kind, each with the path that findings are reported under: as the user named it."""

    code: tuple[tuple[Path, str], ...]
    configs: tuple[tuple[Path, str], ...]


def find_files(paths: Sequence[Path], exclude: Iterable[str] = ()) -> FoundFiles:
    """All files below these paths. A file that is named itself is read even if git ignores it."""
    code: dict[Path, str] = {}
    configs: dict[Path, str] = {}
    for path in paths:
        if not path.exists():
            raise FlatoutError(f"no such file or folder: {str(path)!r}")
        if path.is_file():
            if path.suffix not in CODE:
                raise FlatoutError(f"{str(path)!r} is no Python file or notebook; give .py, .ipynb or a folder")
            code[path.absolute()] = str(path)
            continue
        rules = [*_patterns_above(path.absolute()), *parse_patterns(exclude, path.absolute())]
        for file in _walk(path.absolute(), rules):
            shown = str(path / file.relative_to(path.absolute()))
            if file.suffix in CODE:
                code.setdefault(file, shown)
            elif len(configs) < _MOST_CONFIGS:
                configs.setdefault(file, shown)
    return FoundFiles(*(tuple(sorted(kind.items(), key=lambda item: item[1])) for kind in (code, configs)))


def _patterns_above(folder: Path) -> list[Pattern]:
    """Patterns of the .gitignore files between the repository's root and this folder."""
    chain = [folder]
    while not (chain[-1] / ".git").exists():
        if chain[-1].parent == chain[-1]:
            return []  # no repository: the folder's own .gitignore is read while walking
        chain.append(chain[-1].parent)
    return [rule for above in reversed(chain[1:]) for rule in read_gitignore(above)]


def _walk(folder: Path, rules: list[Pattern]) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    if any(entry.name == ".gitignore" for entry in listed):
        rules = [*rules, *read_gitignore(folder)]
    for entry in listed:
        # A link could lead in a circle, or out of the project.
        if entry.is_symlink() and entry.is_dir():
            continue
        if entry.is_dir(follow_symlinks=False):
            if entry.name in _NEVER or entry.name.endswith(".egg-info"):
                continue
            if (Path(entry.path) / "pyvenv.cfg").exists() or is_ignored(entry.path, True, rules):
                continue
            yield from _walk(Path(entry.path), rules)
        elif entry.name.endswith((*CODE, *CONFIGS)) and not is_ignored(entry.path, False, rules):
            yield Path(entry.path)


def read_code(path: Path) -> str:
    """The text of a Python file in the encoding it declares. Raises FlatoutError if it cannot be read."""
    try:
        if path.stat().st_size > LONGEST_BYTES:
            raise FlatoutError(f"larger than {LONGEST_BYTES >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise FlatoutError(error.strerror or str(error)) from error
    return decode_source(data)


def decode_source(data: bytes) -> str:
    if b"\0" in data:
        raise FlatoutError("holds null bytes")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise FlatoutError("is not text in UTF-8 or the encoding it declares") from error
    return text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")


def read_config(path: str) -> str:
    """Empty if it cannot be read, or is too large to be settings."""
    try:
        if os.stat(path).st_size > _LONGEST_CONFIG_BYTES:
            return ""
        return decode_config(Path(path).read_bytes())
    except (OSError, ValueError):
        return ""


def decode_config(data: bytes) -> str:
    return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


# Patterns of .gitignore, which the user may give to exclude files as well.


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of a .gitignore, relative to the folder `base`."""

    base: str
    matches: re.Pattern[str]
    negated: bool
    only_folders: bool


def parse_patterns(lines: Iterable[str], base: Path) -> list[Pattern]:
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


def read_gitignore(folder: Path) -> list[Pattern]:
    """Patterns of this folder's .gitignore; none if it has none."""
    try:
        return parse_patterns(
            (folder / ".gitignore").read_text(encoding="utf-8", errors="replace").splitlines(), folder
        )
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
