"""The YAML configuration, checked key by key."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import yaml  # type: ignore[import-untyped, unused-ignore]

from slider.errors import SliderError

CONFIGS = Path(__file__).parents[1] / "configs"
SIZES = ("tiny", "full")
PRECISIONS = ("fp32", "bf16")
MAY_BE_ZERO = ("num_workers", "weight_decay", "warmup_steps", "offset_weight")
POINTS = 2  # the gap, then the piece

Section = TypeVar("Section")


@dataclass(frozen=True, slots=True)
class DataConfig:
    height: int
    width: int
    stride: int
    radius: int
    batch_size: int
    train_files: int
    val_files: int
    test_files: int
    calibration_files: int

    @property
    def map_size(self) -> tuple[int, int]:
        return self.height // self.stride, self.width // self.stride


@dataclass(frozen=True, slots=True)
class LoaderConfig:
    num_workers: int
    prefetch_factor: int
    pin_memory: bool


@dataclass(frozen=True, slots=True)
class ModelConfig:
    width: int
    blocks: tuple[int, ...]
    expansion: int
    stages: int


@dataclass(frozen=True, slots=True)
class TrainConfig:
    steps: int
    lr: float
    weight_decay: float
    warmup_steps: int
    grad_clip: float
    offset_weight: float
    precision: str
    cudnn_benchmark: bool
    eval_epochs: int
    save_epochs: int
    log_interval: int


@dataclass(frozen=True, slots=True)
class Config:
    size: str
    data: DataConfig
    loader: LoaderConfig
    model: ModelConfig
    train: TrainConfig


def load_config(path: Path, overrides: list[str]) -> Config:
    """Read the file, then apply `section.key=value` overrides."""
    try:
        tree = yaml.safe_load(path.read_text())
    except OSError as error:
        raise SliderError(f"cannot read config {str(path)!r}: {error.strerror}; pass --config FILE") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise SliderError(f"config {str(path)!r} is not YAML; see configs/tiny.yaml for the form") from None
    if not isinstance(tree, dict):
        raise SliderError(f"config {str(path)!r} holds no keys; see configs/tiny.yaml for the form")
    for override in overrides:
        _override(tree, override)
    config = _build(Config, tree, "")
    _check(config)
    return config


def _override(tree: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    section, dot, key = name.partition(".")
    if not equals or not dot:
        raise SliderError(f"--options takes section.key=value, such as train.lr=0.001, got {override!r}")
    if not isinstance(tree.get(section), dict) or key not in tree[section]:
        raise SliderError(f"--options names the unknown key {name!r}; the keys are those of the config file")
    try:
        tree[section][key] = yaml.safe_load(text)
    except yaml.YAMLError:
        raise SliderError(f"--options {name} has no readable value: {text!r}") from None


def _build(kind: type[Section], tree: dict[str, Any], prefix: str) -> Section:
    hints = get_type_hints(kind)
    unknown = [f"{prefix}{key}" for key in tree if key not in hints]
    if unknown:
        raise SliderError(f"unknown config key {unknown[0]!r}; it may be one of {', '.join(hints)}")
    missing = [f"{prefix}{key}" for key in hints if key not in tree]
    if missing:
        raise SliderError(f"config key {missing[0]!r} is missing; see configs/tiny.yaml for all of them")
    return kind(**{key: _value(f"{prefix}{key}", hint, tree[key]) for key, hint in hints.items()})


def _value(name: str, hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise SliderError(f"config key {name!r} must be a section, got {value!r}")
        return _build(hint, value, f"{name}.")  # type: ignore[arg-type]
    if hint in (bool, str):
        if not isinstance(value, hint):
            raise SliderError(f"{name} must be {'true or false' if hint is bool else 'a word'}, got {value!r}")
        return value
    if hint is int:
        return _integer(name, value, 0 if name.rsplit(".")[-1] in MAY_BE_ZERO else 1)
    if hint is float:
        return _number(name, value)
    if not isinstance(value, list) or not value:
        raise SliderError(f"{name} must be a list of counts, got {value!r}")
    return tuple(_integer(name, item, 1) for item in value)


def _integer(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SliderError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return value


def _number(name: str, value: Any) -> float:
    # YAML reads 1e-3 as a word; people write it all the same.
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    zero = name.rsplit(".")[-1] in MAY_BE_ZERO
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise SliderError(f"{name} must be a number {'of at least' if zero else 'above'} 0, got {value!r}")
    return number


def _check(config: Config) -> None:
    data, train = config.data, config.train
    if config.size not in SIZES:
        raise SliderError(f"size must be one of {', '.join(SIZES)}, got {config.size!r}")
    if train.precision not in PRECISIONS:
        raise SliderError(f"train.precision must be one of {', '.join(PRECISIONS)}, got {train.precision!r}")
    if data.stride != 4:
        raise SliderError(f"data.stride must be 4, the network's own, got {data.stride}")
    for name, length, unit in (("height", data.height, 32), ("width", data.width, 64)):
        # The picture is drawn in patches, and each point keeps the whole cap around it inside the map.
        if length % unit or length // data.stride < 2 * data.radius + 4:
            raise SliderError(f"data.{name} must be a multiple of {unit} and hold the cap twice over, got {length}")
    if data.width < 2 * data.height:
        raise SliderError(f"data.width must be at least twice data.height, got {data.width}")
    if data.calibration_files > data.train_files:
        raise SliderError(f"data.calibration_files must be at most the {data.train_files} training files")
