"""Single values of a config file with their lines: YAML, JSON, TOML, or Python that only assigns. Never executed."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

SUFFIXES = (".yaml", ".yml", ".json", ".toml", ".py")
_UNKNOWN = object()
_KEY = re.compile(r"([\w.\-]+)[\"']?\s*[:=]")
Path_ = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """`value` is None where it is computed, so that nobody can tell without running it.

    `over` is what it takes the place of: the same in a config that this one builds on.
    """

    value: Any
    file: str
    line: int | None
    over: Leaf | None = None


Leaves = dict[Path_, Leaf]
# The text of a file, empty where it cannot be had as it was.
Reader = Callable[[str], str]


class Uncertain(Exception):
    """The file does things that cannot be followed by reading it."""


def leaves_of(file: str, read: Reader, depth: int = 0) -> Leaves:
    """All values by their path. Raises Uncertain where the text does not tell them all."""
    text = read(file)
    if not text.strip() or depth > 8:
        raise Uncertain
    suffix = PurePath(file).suffix.lower()
    try:
        if suffix in (".yaml", ".yml"):
            return _yaml(file, text)
        if suffix == ".py":
            return _python(file, text, read, depth)
        tree = json.loads(text) if suffix == ".json" else tomllib.loads(text)
    except (ValueError, SyntaxError, RecursionError) as error:
        raise Uncertain from error
    lines = _lines_of_keys(text)
    return {path: Leaf(value, file, lines.get(path[-1])) for path, value in _walk(tree, ())}


def _walk(value: Any, path: Path_) -> Iterator[tuple[Path_, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, (*path, str(key)))
    elif path:
        yield path, value


def _lines_of_keys(text: str) -> dict[str, int | None]:
    """The line of each key; None where it occurs on several."""
    found: dict[str, int | None] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        for key in {part for name in _KEY.findall(line.split("#")[0]) for part in (name, *name.split("."))}:
            found[key] = None if key in found else number
    return found


def _yaml(file: str, text: str) -> Leaves:
    try:
        import yaml
    except ImportError as error:
        raise Uncertain from error
    found: Leaves = {}

    def walk(node: Any, path: Path_) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, item in node.value:
                # Merge keys and Hydra's list of defaults bring in values that are written elsewhere.
                if key.value == "<<" or (not path and key.value == "defaults"):
                    raise Uncertain
                walk(item, (*path, str(key.value)))
        elif path:
            value = loader.construct_object(node, deep=True)
            found[path] = Leaf(value, file, node.start_mark.line + 1)

    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            raise Uncertain
        walk(node, ())
    except yaml.YAMLError as error:
        raise Uncertain from error
    return found


def _python(file: str, text: str, read: Reader, depth: int) -> Leaves:
    """A config of the mmcv kind: names are assigned literals and dict(...), `_base_` names files below it."""
    own: Leaves = {}
    bases: list[str] = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            raise Uncertain
        name = node.targets[0].id
        if name == "_base_":
            bases = _bases(node.value)
            continue
        own.update(_values(node.value, (name,), file))
    merged: Leaves = {}
    for base in bases:
        merged.update(leaves_of(str(PurePath(file).parent / base), read, depth + 1))
    if any(path[-1] == "_delete_" for path in own):
        raise Uncertain
    merged.update({path: replace(leaf, over=merged.get(path)) for path, leaf in own.items()})
    return merged


def _bases(node: ast.expr) -> list[str]:
    value = _literal(node)
    if isinstance(value, str):
        return [value]
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return list(value)
    raise Uncertain


def _values(node: ast.expr, path: Path_, file: str) -> Leaves:
    pairs: list[tuple[str, ast.expr]] | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        if any(keyword.arg is None for keyword in node.keywords):
            raise Uncertain
        pairs = [(str(keyword.arg), keyword.value) for keyword in node.keywords]
    elif isinstance(node, ast.Dict):
        if not all(isinstance(key, ast.Constant) for key in node.keys):
            raise Uncertain
        pairs = [(str(key.value), item) for key, item in zip(node.keys, node.values, strict=True)]  # type: ignore[union-attr]
    if pairs is None:
        value = _literal(node)
        return {path: Leaf(None if value is _UNKNOWN else value, file, node.lineno)}
    found: Leaves = {}
    for key, item in pairs:
        found.update(_values(item, (*path, key), file))
    return found


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _UNKNOWN
