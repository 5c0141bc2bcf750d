"""Values of a config file with their lines, and which setting of torch a key means.

YAML, JSON, TOML, or Python that only assigns. Nothing is executed.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from flatout.source.syntax.nodes import literal

CONFIG_SUFFIXES = (".yaml", ".yml", ".json", ".toml", ".py")
_KEY = re.compile(r"([\w.\-]+)[\"']?\s*[:=]")
KeyPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """`value` is None where it is computed when the config is loaded.

    `over` is the value it replaces, in a config that this one builds on.
    """

    value: Any
    file: str
    line: int | None
    over: ConfigValue | None = None


ConfigValues = dict[KeyPath, ConfigValue]
# Gives the text of a file; empty where it cannot be read.
Reader = Callable[[str], str]


class UncertainConfig(Exception):
    """Not all values of the file can be told without running it."""


def parse_config(file: str, read: Reader, depth: int = 0) -> ConfigValues:
    """All values by their path. Raises UncertainConfig where the text does not tell them all."""
    text = read(file)
    if not text.strip() or depth > 8:
        raise UncertainConfig
    suffix = PurePath(file).suffix.lower()
    try:
        if suffix in (".yaml", ".yml"):
            return _parse_yaml(file, text)
        if suffix == ".py":
            return _parse_python(file, text, read, depth)
        tree = json.loads(text) if suffix == ".json" else tomllib.loads(text)
    except (ValueError, SyntaxError, RecursionError) as error:
        raise UncertainConfig from error
    lines = _lines_of_keys(text)
    return {path: ConfigValue(value, file, lines.get(path[-1])) for path, value in _walk(tree, ())}


def _walk(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
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


def _parse_yaml(file: str, text: str) -> ConfigValues:
    try:
        import yaml
    except ImportError as error:
        raise UncertainConfig from error
    found: ConfigValues = {}

    def walk(node: Any, path: KeyPath) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, item in node.value:
                # Merge keys and Hydra's list of defaults bring in values that are written elsewhere.
                if key.value == "<<" or (not path and key.value == "defaults"):
                    raise UncertainConfig
                walk(item, (*path, str(key.value)))
        elif path:
            value = loader.construct_object(node, deep=True)
            found[path] = ConfigValue(value, file, node.start_mark.line + 1)

    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            raise UncertainConfig
        walk(node, ())
    except yaml.YAMLError as error:
        raise UncertainConfig from error
    return found


def _parse_python(file: str, text: str, read: Reader, depth: int) -> ConfigValues:
    """A config as mmcv has them: names are assigned literals and dict(...), `_base_` names the files it builds on."""
    own: ConfigValues = {}
    bases: list[str] = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            raise UncertainConfig
        name = node.targets[0].id
        if name == "_base_":
            bases = _bases(node.value)
            continue
        own.update(_values(node.value, (name,), file))
    merged: ConfigValues = {}
    for base in bases:
        merged.update(parse_config(str(PurePath(file).parent / base), read, depth + 1))
    if any(path[-1] == "_delete_" for path in own):
        raise UncertainConfig
    merged.update({path: replace(leaf, over=merged.get(path)) for path, leaf in own.items()})
    return merged


def _bases(node: ast.expr) -> list[str]:
    value = literal(node)
    if isinstance(value, str):
        return [value]
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return list(value)
    raise UncertainConfig


def _values(node: ast.expr, path: KeyPath, file: str) -> ConfigValues:
    pairs: list[tuple[str, ast.expr]] | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        if any(keyword.arg is None for keyword in node.keywords):
            raise UncertainConfig
        pairs = [(str(keyword.arg), keyword.value) for keyword in node.keywords]
    elif isinstance(node, ast.Dict):
        if not all(isinstance(key, ast.Constant) for key in node.keys):
            raise UncertainConfig
        pairs = [(str(key.value), item) for key, item in zip(node.keys, node.values, strict=True)]  # type: ignore[union-attr]
    if pairs is None:
        return {path: ConfigValue(literal(node), file, node.lineno)}
    found: ConfigValues = {}
    for key, item in pairs:
        found.update(_values(item, (*path, key), file))
    return found


# Keys that mean a setting of torch. Only those whose meaning is certain.

_MEANINGS = {
    "num_workers": "num_workers workers_per_gpu dataloader_num_workers n_workers num_loader_workers num_data_workers",
    "batch_size": "batch_size samples_per_gpu per_device_train_batch_size dataloader_batch_size train_batch_size",
    "prefetch_factor": "prefetch_factor dataloader_prefetch_factor",
    "pin_memory": "pin_memory dataloader_pin_memory",
    "persistent_workers": "persistent_workers dataloader_persistent_workers",
    "cudnn_benchmark": "cudnn_benchmark",
    "cudnn_deterministic": "cudnn_deterministic",
    "tf32": "tf32 allow_tf32 use_tf32 matmul_allow_tf32",
    "amp": "amp use_amp amp_enabled enable_amp fp16 bf16 use_fp16 use_bf16 mixed_precision autocast",
    "precision": "precision",
    "compile": "compile use_compile compile_model torch_compile use_torch_compile",
}
TORCH_SETTINGS = {name: meaning for meaning, names in _MEANINGS.items() for name in names.split()}
# Names that mean it on a command line only: a config may have them in a section that is about something else.
_ON_COMMAND_LINE = {"workers": "num_workers", "j": "num_workers"}
# Settings that are on when they are named without a value.
SWITCH_SETTINGS = frozenset(
    {"pin_memory", "persistent_workers", "cudnn_benchmark", "cudnn_deterministic", "tf32", "amp", "compile"}
)
# Keys that mean it within this section.
_IN_SECTION = {
    ("fp16", "enabled"): "amp",
    ("bf16", "enabled"): "amp",
    ("amp", "enabled"): "amp",
    ("cudnn", "benchmark"): "cudnn_benchmark",
    ("cudnn", "deterministic"): "cudnn_deterministic",
}
_ELSEWHERE = re.compile(
    r"val|valid|validation|test|eval|evaluation|infer|inference|predict|export|demo|serve|make|preprocess"
)


def torch_setting(path: KeyPath, on_command_line: bool = False) -> str | None:
    """The setting of torch that the value at this path is for; None where that is not certain."""
    parts = [part.strip("-").lower().replace("-", "_") for part in path]
    if any(_ELSEWHERE.fullmatch(word) for part in parts for word in part.split("_")):
        return None
    key = parts[-1].removeprefix("train_") if parts[-1] not in TORCH_SETTINGS else parts[-1]
    if len(parts) > 1 and (parts[-2], key) in _IN_SECTION:
        return _IN_SECTION[parts[-2], key]
    if on_command_line and len(parts) == 1 and key in _ON_COMMAND_LINE:
        return _ON_COMMAND_LINE[key]
    return TORCH_SETTINGS.get(key)
