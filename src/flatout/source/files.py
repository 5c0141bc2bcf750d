"""Finds the files to look at, and reads them: Python, notebooks, and the config files beside them."""

from __future__ import annotations

import io
import os
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flatout.errors import FlatoutError
from flatout.source import gitignore
from flatout.source.gitignore import Pattern

CODE = (".py", ".pyw", ".ipynb")
CONFIGS = (".yaml", ".yml", ".json", ".toml")
# Nobody writes a longer one by hand; generated tables are no training code.
LONGEST_BYTES = 2 << 20
_LONGEST_CONFIG_BYTES = 256 << 10
_MOST_CONFIGS = 500
# Never a user's own code, ignored by git or not.
_NEVER = {
    ".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv", "venv", ".tox", ".nox", ".eggs", ".mypy_cache",
    ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints", ".flatout",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """Files by kind. `shown` is how the user named them: the path that findings are reported under."""

    code: tuple[tuple[Path, str], ...]
    configs: tuple[tuple[Path, str], ...]


def find(paths: Sequence[Path], exclude: Iterable[str] = ()) -> Found:
    """All files below these paths. A file that is named is looked at even if git ignores it."""
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
        rules = [*_above(path.absolute()), *gitignore.patterns(exclude, path.absolute())]
        for file in _walk(path.absolute(), rules):
            shown = str(path / file.relative_to(path.absolute()))
            if file.suffix in CODE:
                code.setdefault(file, shown)
            elif len(configs) < _MOST_CONFIGS:
                configs.setdefault(file, shown)
    return Found(*(tuple(sorted(kind.items(), key=lambda one: one[1])) for kind in (code, configs)))


def _above(folder: Path) -> list[Pattern]:
    """What the .gitignore files between the repository's root and this folder say."""
    chain = [folder]
    while not (chain[-1] / ".git").exists():
        if chain[-1].parent == chain[-1]:
            return []  # no repository: the folder's own .gitignore is read while walking
        chain.append(chain[-1].parent)
    return [rule for one in reversed(chain[1:]) for rule in gitignore.read(one)]


def _walk(folder: Path, rules: list[Pattern]) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    if any(entry.name == ".gitignore" for entry in listed):
        rules = [*rules, *gitignore.read(folder)]
    for entry in listed:
        # A link could lead round in a circle, or out of the project.
        if entry.is_symlink() and entry.is_dir():
            continue
        if entry.is_dir(follow_symlinks=False):
            if entry.name in _NEVER or entry.name.endswith(".egg-info"):
                continue
            if (Path(entry.path) / "pyvenv.cfg").exists() or gitignore.is_ignored(entry.path, True, rules):
                continue
            yield from _walk(Path(entry.path), rules)
        elif entry.name.endswith((*CODE, *CONFIGS)) and not gitignore.is_ignored(entry.path, False, rules):
            yield Path(entry.path)


def read_code(path: Path) -> str:
    """The text of a Python file in the encoding it declares. Raises FlatoutError with the reason if it has none."""
    try:
        if path.stat().st_size > LONGEST_BYTES:
            raise FlatoutError(f"larger than {LONGEST_BYTES >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise FlatoutError(error.strerror or str(error)) from error
    return decoded(data)


def decoded(data: bytes) -> str:
    if b"\0" in data:
        raise FlatoutError("holds null bytes")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise FlatoutError("is not text in UTF-8 or the encoding it declares") from error
    return text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")


def read_config(path: str) -> str:
    """Empty where it cannot be had, or is data rather than settings."""
    try:
        if os.stat(path).st_size > _LONGEST_CONFIG_BYTES:
            return ""
        return decoded_config(Path(path).read_bytes())
    except (OSError, ValueError):
        return ""


def decoded_config(data: bytes) -> str:
    return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
