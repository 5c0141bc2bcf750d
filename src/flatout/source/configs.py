"""The config files of a project: their values by path, and which of them a piece of code loads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import PurePath

from flatout.source.leaves import Leaf, Leaves, Path_, Uncertain, leaves_of
from flatout.source.module import Module
from flatout.source.nodes import called_name
from flatout.source.project import Project

# A file with such a line does more than to assign.
_DOING = re.compile(r"\n(?:import|from|def|class|if|for|with|@)\b")
_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
# What gives the whole of a config file.
LOADING = {
    "load", "safe_load", "full_load", "loads", "fromfile", "from_file", "load_config", "read_config", "get_config",
    "parse_args", "parse_known_args", "parse_config", "parse_args_and_config",
}  # fmt: skip


class Configs:
    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def files(self) -> dict[str, Leaves]:
        """Every file that can be read off, with its values."""
        found = {}
        for file in self.project.configs:
            try:
                found[file] = leaves_of(file, self.project.read)
            except Uncertain:
                continue
        return found

    @cached_property
    def in_python(self) -> list[tuple[Module, Leaves]]:
        """Configs of the mmcv kind, which only assign."""
        found = []
        for module in self.project.modules:
            if "config" in module.shown.lower() and "dict(" in module.text and not _DOING.search(module.text):
                try:
                    found.append((module, leaves_of(module.shown, self.project.read)))
                except Uncertain:
                    continue
        return found

    def at(self, path: Path_, named: frozenset[str] = frozenset()) -> list[Leaf]:
        """Values whose path ends so, of all files or of those that are named."""
        return [
            leaf
            for file, leaves in self.files.items()
            if not named or file in named
            for key, leaf in leaves.items()
            if key[-len(path) :] == path and leaf.value is not None
        ]

    def named_in(self, node: ast.expr) -> frozenset[str]:
        """The files whose names stand in an expression: `yaml.safe_load(open("configs/train.yaml"))`."""
        return frozenset(file for name in _names(node) for file in self.project.configs if _is_called(file, name))


def is_loading(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and called_name(node) in LOADING


def _names(node: ast.expr) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value.endswith(_SUFFIXES):
            yield one.value


def _is_called(file: str, name: str) -> bool:
    parts = [part for part in PurePath(name).parts if part not in (".", "..", "/")]
    return bool(parts) and list(PurePath(file).parts[-len(parts) :]) == parts
