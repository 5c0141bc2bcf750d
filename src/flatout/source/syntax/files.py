"""Files of a check, without those that git ignores: found, read, and written back with a fix."""

from __future__ import annotations

import ast
import io
import os
import re
import stat
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flatout.errors import FlatoutError
from flatout.records.atomic import PRIVATE, atomic_file
from flatout.source.syntax.config_files import UncertainConfig, parse_config
from flatout.source.syntax.notebook import cell_sources, parse_notebook, replace_cell_sources

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
    return _with_plain_ends(text).removeprefix("\ufeff")


def read_config(path: str) -> str:
    """Empty if it cannot be read, or is too large to be settings."""
    try:
        if os.stat(path).st_size > _LONGEST_CONFIG_BYTES:
            return ""
        return decode_config(Path(path).read_bytes())
    except (OSError, ValueError):
        return ""


def decode_config(data: bytes) -> str:
    return _with_plain_ends(data.decode("utf-8"))


def _with_plain_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


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


_PART = re.compile(r"\*\*/|\*\*|\[(.[^\]]*)\]|.", re.S)
_WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _expression(glob: str) -> str:
    def of_part(found: re.Match[str]) -> str:
        inside = found[1]
        if inside:
            return "[" + ("^" + inside[1:] if inside[0] in "!^" else inside).replace("\\", "\\\\") + "]"
        return _WILD.get(found[0]) or re.escape(found[0])

    return _PART.sub(of_part, glob)


# Files as texts that can be edited, and back to bytes: encoding, byte order mark and notebook format are kept.

# Texts by the number of their cell; a file that is not a notebook has one, under None.
Texts = dict[int | None, str]


def read_texts(file: str, data: bytes) -> Texts:
    """Raises FlatoutError where the bytes are not text, or would not come back as they were."""
    text = _decode(file, data)
    return dict(cell_sources(text).items()) if file.endswith(".ipynb") else {None: text}


def encode_texts(file: str, data: bytes, changed: Mapping[int | None, str]) -> bytes:
    """The bytes of a file in which some texts are changed."""
    text = _decode(file, data)
    if file.endswith(".ipynb"):
        text = replace_cell_sources(text, {cell: source for cell, source in changed.items() if cell is not None})
    else:
        text = changed.get(None, text)
    try:
        return text.encode(_encoding(file, data))
    except UnicodeEncodeError as error:
        raise FlatoutError("cannot hold the fix in the encoding it declares") from error


def _decode(file: str, data: bytes) -> str:
    try:
        encoding = _encoding(file, data)
        text = data.decode(encoding)
        if text.encode(encoding) == data:
            return text
    except (SyntaxError, UnicodeError, LookupError):
        pass
    raise FlatoutError("cannot be edited without changing more of it than the fix")


def _encoding(file: str, data: bytes) -> str:
    return "utf-8" if file.endswith(CONFIGS) else tokenize.detect_encoding(io.BytesIO(data).readline)[0]


def soundness(file: str, data: bytes) -> int:
    """0: it cannot be read. 1: it can be parsed. 2: it compiles. A fix must not lower it."""
    try:
        if file.endswith(CONFIGS):
            parse_config(file, lambda _: decode_config(data))
            return 1
        text = decode_source(data)
        text = parse_notebook(text).text if file.endswith(".ipynb") else text
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
            with suppress(SyntaxError, ValueError, RecursionError):
                compile(tree, file, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
                return 2
            return 1
    except (FlatoutError, UncertainConfig, SyntaxError, ValueError, RecursionError, MemoryError):
        return 0


def read_bytes(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise FlatoutError(f"cannot be read ({error.strerror or error})") from error


def read_writable(file: str) -> bytes:
    """The bytes of a file that will be written back. Raises FlatoutError if there is no permission for that."""
    path = os.path.realpath(file)
    data = read_bytes(path)
    if not os.access(path, os.W_OK) or not os.access(os.path.dirname(path), os.W_OK):
        raise FlatoutError("cannot be written: no permission for it or its folder")
    return data


def replace_file(file: str, before: bytes, after: bytes) -> None:
    """Writes atomically. A file that was changed meanwhile is left alone; links are followed, the mode is kept."""
    path = Path(os.path.realpath(file))
    try:
        if path.read_bytes() != before:
            raise FlatoutError(f"{file} was changed by someone else meanwhile; it is left as it is")
        with atomic_file(path, mode=PRIVATE, durable=True) as beside:
            beside.write_bytes(after)
            beside.chmod(stat.S_IMODE(path.stat().st_mode))
    except OSError as error:
        raise FlatoutError(f"{file} cannot be written ({error.strerror or error}); it is left as it is") from error
