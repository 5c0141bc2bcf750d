"""The config that a script takes when none is named: only where its folder leaves no doubt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from flatout.source.syntax.config_files import CONFIG_SUFFIXES, ConfigValues, Reader, UncertainConfig, parse_config

_FOLDERS = ("configs", "config", "conf", "cfg", "cfgs")
_MOST_SOURCES, _MOST_FILES = 100, 12


def defaults(script: Path, words: Sequence[str], read: Reader) -> ConfigValues:
    """What all configs have in common that the script can have taken. Nothing if it names no such folder or file."""
    folder = script.parent
    try:
        # Looked for first: most scripts have no such folder, and reading their neighbours takes time.
        if not any(_configs(folder / name) for name in (".", *_FOLDERS)):
            return {}
        sources = [script, *sorted(folder.glob("*/*.py")), *sorted(folder.glob("*.py"))][:_MOST_SOURCES]
        literals = "\n".join(read(str(source)) for source in sources)
        candidates = _candidates(folder, words, literals)
    except OSError:
        return {}
    if not candidates or len(candidates) > _MOST_FILES:
        return {}
    try:
        trees = [parse_config(str(file), read) for file in candidates]
    except UncertainConfig:
        return {}
    return _in_common(trees)


def _candidates(folder: Path, words: Sequence[str], literals: str) -> list[Path]:
    beside = [file for file in _configs(folder) if file.suffix != ".py" and _is_named(file.name, literals)]
    if beside:
        return beside if len(beside) == 1 else []
    for name in _FOLDERS:
        files = _configs(folder / name)
        if not files or not _is_named(name, literals):
            continue
        named = [file for file in files if _is_named(file.name, literals)]
        chosen = [file for file in files if file.stem in words]
        return chosen if len(chosen) == 1 else named if len(named) == 1 else files
    return []


def _configs(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(
        file for file in folder.iterdir() if file.suffix.lower() in CONFIG_SUFFIXES and file.name != "__init__.py"
    )


def _is_named(name: str, literals: str) -> bool:
    """As a string of its own, or as a part of a path in one."""
    return re.search(rf"[\"'/]{re.escape(name)}[\"'/]", literals) is not None


def _in_common(trees: Sequence[ConfigValues]) -> ConfigValues:
    first, *rest = trees
    return {
        path: leaf
        for path, leaf in first.items()
        if all(path in tree and tree[path].value == leaf.value for tree in rest)
    }
