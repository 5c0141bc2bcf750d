"""Python config files with inheritance, and the records they become.

A config file assigns plain dicts. `_base_` names files it builds on; what it assigns itself wins, key by key.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from bev.errors import UserError

CONFIGS = Path(__file__).parents[1] / "configs"
SIZES = ("tiny", "full")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    embed_dim: int
    depths: list[int]
    num_heads: list[int]
    window_size: int
    drop_path_rate: float
    neck_channels: int
    context_channels: int
    map_channels: int


@dataclass(frozen=True, slots=True)
class DataConfig:
    samples_per_gpu: int
    workers_per_gpu: int
    pin_memory: bool
    persistent_workers: bool
    prefetch_factor: int
    image_size: tuple[int, int]  # height, width
    source_size: tuple[int, int]
    train_samples: int
    val_samples: int
    disk_delay_ms: float


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    lr: float
    weight_decay: float


@dataclass(frozen=True, slots=True)
class OptimizerHookConfig:
    grad_clip: float
    cumulative_iters: int


@dataclass(frozen=True, slots=True)
class LrConfig:
    base_batch_size: int
    power: float
    min_lr_ratio: float
    warmup_iters: int


@dataclass(frozen=True, slots=True)
class Fp16Config:
    enabled: bool
    loss_scale: float | str


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    max_iters: int


@dataclass(frozen=True, slots=True)
class IntervalConfig:
    interval: int


@dataclass(frozen=True, slots=True)
class Config:
    model: ModelConfig
    data: DataConfig
    optimizer: OptimizerConfig
    optimizer_config: OptimizerHookConfig
    lr_config: LrConfig
    fp16: Fp16Config
    runner: RunnerConfig
    evaluation: IntervalConfig
    checkpoint_config: IntervalConfig
    log_config: IntervalConfig


def load_config(path: Path, size: str, options: Sequence[str] = ()) -> Config:
    """The config of a file, on top of what the size says, with `key.key=value` options over both."""
    tree = merge(read_file(CONFIGS / "sizes" / f"{size}.py"), read_file(path))
    for option in options:
        tree = merge(tree, _parse_option(option))
    config = _build(Config, tree, "")
    assert isinstance(config, Config)
    _check(config)
    return config


def read_file(path: Path) -> dict[str, Any]:
    """What a config file assigns, with its bases below it."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the config {path}: {error}; see configs/ for those there are") from None
    names: dict[str, Any] = {}
    try:
        exec(compile(text, str(path), "exec"), {}, names)
    except Exception as error:
        raise UserError(f"the config {path} does not run: {type(error).__name__}: {error}") from None
    bases = names.pop("_base_", [])
    tree: dict[str, Any] = {}
    for base in [bases] if isinstance(bases, str) else bases:
        tree = merge(tree, read_file(path.parent / base))
    return merge(tree, names)


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both, key by key; where both have a value, the one above."""
    merged = dict(below)
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            value = merge(merged[key], value)
        merged[key] = value
    return merged


def _parse_option(option: str) -> dict[str, Any]:
    key, equals, text = option.partition("=")
    if not key or not equals:
        raise UserError(f"--options takes key=value, got {option!r}; for example data.samples_per_gpu=8")
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    for part in reversed(key.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def _build(kind: type, tree: Any, path: str) -> Any:
    """A record from nested dicts; every key must be known and every value of its type."""
    if not isinstance(tree, Mapping):
        raise UserError(f"config: {path} must be a dict, got {tree!r}")
    known = {field.name for field in fields(kind)}
    prefix = f"{path}." if path else ""
    for key in tree:
        if key not in known:
            raise UserError(f"config: unknown key {f'{prefix}{key}'!r}; known here are {', '.join(sorted(known))}")
    values = {}
    for name, wanted in get_type_hints(kind).items():
        if name not in tree:
            raise UserError(f"config: {f'{prefix}{name}'!r} is missing; build on configs/_base_/default.py")
        if is_dataclass(wanted):
            assert isinstance(wanted, type)
            values[name] = _build(wanted, tree[name], f"{prefix}{name}")
        else:
            values[name] = _convert(wanted, tree[name], f"{prefix}{name}")
    return kind(**values)


def _convert(wanted: Any, value: Any, path: str) -> Any:
    if isinstance(wanted, UnionType):
        for choice in get_args(wanted):
            if _fits(choice, value):
                return _convert(choice, value, path)
    elif get_origin(wanted) in (list, tuple):
        item, *more = get_args(wanted)
        right_length = not more or (isinstance(value, list | tuple) and len(value) == 1 + len(more))
        if isinstance(value, list | tuple) and right_length and all(_fits(item, part) for part in value):
            return get_origin(wanted)(value)
    elif _fits(wanted, value):
        return float(value) if wanted is float else value
    raise UserError(f"config: {path} must be {getattr(wanted, '__name__', wanted)}, got {value!r}")


def _fits(wanted: type, value: Any) -> bool:
    if isinstance(value, bool):
        return wanted is bool
    return isinstance(value, int | float) if wanted is float else isinstance(value, wanted)


def _check(config: Config) -> None:
    """What the types do not say."""
    model, data = config.model, config.data
    at_least = {
        "data.samples_per_gpu": (data.samples_per_gpu, 1),
        "data.workers_per_gpu": (data.workers_per_gpu, 0),
        "data.prefetch_factor": (data.prefetch_factor, 1),
        "data.train_samples": (data.train_samples, data.samples_per_gpu),
        "data.val_samples": (data.val_samples, 1),
        "data.disk_delay_ms": (data.disk_delay_ms, 0),
        "data.image_size[0]": (data.image_size[0], 32),
        "data.image_size[1]": (data.image_size[1], 32),
        "data.source_size[0]": (data.source_size[0], 32),
        "data.source_size[1]": (data.source_size[1], 32),
        "optimizer_config.cumulative_iters": (config.optimizer_config.cumulative_iters, 1),
        "lr_config.base_batch_size": (config.lr_config.base_batch_size, 1),
        "lr_config.warmup_iters": (config.lr_config.warmup_iters, 0),
        "evaluation.interval": (config.evaluation.interval, 1),
        "checkpoint_config.interval": (config.checkpoint_config.interval, 1),
        "log_config.interval": (config.log_config.interval, 1),
        "runner.max_iters": (config.runner.max_iters, 1),
        "model.window_size": (model.window_size, 2),
    }
    for path, (value, least) in at_least.items():
        if value < least:
            raise UserError(f"config: {path} must be at least {least}, got {value}")
    if len(model.depths) != 4 or len(model.num_heads) != 4 or min([*model.depths, *model.num_heads]) < 1:
        raise UserError(
            f"config: model.depths and model.num_heads must each have four numbers above 0, "
            f"got {model.depths} and {model.num_heads}"
        )
    for level, heads in enumerate(model.num_heads):
        if model.embed_dim < 1 or (model.embed_dim * 2**level) % heads:
            raise UserError(
                f"config: model.embed_dim {model.embed_dim} does not divide by model.num_heads {model.num_heads}"
            )
    if not 0 <= model.drop_path_rate < 1:
        raise UserError(f"config: model.drop_path_rate must be at least 0 and below 1, got {model.drop_path_rate}")
    scale = config.fp16.loss_scale
    if scale != "dynamic" and (isinstance(scale, str) or scale <= 0):
        raise UserError(f"config: fp16.loss_scale must be above 0 or 'dynamic', got {scale!r}")
