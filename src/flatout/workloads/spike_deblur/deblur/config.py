"""The YAML config: typed, checked, with `--options` on top and a small form for machines without a GPU."""

from __future__ import annotations

import dataclasses
import difflib
import os
import typing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from deblur.errors import DeblurError

Section = TypeVar("Section")


@dataclass(frozen=True, slots=True)
class Chunks:
    """Attention over time runs on pieces of the image, since all pixels at once do not fit smaller cards."""

    HEADS: int = 4
    ADAPTIVE_CHUNK: bool = True
    MAX_BATCH_TOKENS: int = 49152
    CHUNK_SIZE: int = 64
    CHUNK_SHAPE: str = "square"


@dataclass(frozen=True, slots=True)
class Model:
    VRT_DEPTHS: tuple[int, ...] = (8, 8, 8, 8, 4, 4, 4, 8)
    EMBED_DIMS: tuple[int, ...] = (48, 64, 96, 128, 96, 64, 48, 48)
    HEAD_DIM: int = 16
    WINDOW_SIZE: int = 8
    USE_CHECKPOINT_ATTN: bool = True
    USE_CHECKPOINT_FFN: bool = True
    FUSE: Chunks = field(default_factory=Chunks)
    SPIKE_TSA: Chunks = field(default_factory=Chunks)


@dataclass(frozen=True, slots=True)
class Data:
    CLIP_LENGTH: int = 5
    SPIKE_BINS: int = 32
    TRAIN_CROP_SIZE: int = 256
    CROP_SCHEDULE: tuple[tuple[int, int], ...] = ()  # (first epoch, crop size) pairs; empty: always TRAIN_CROP_SIZE
    REPEAT: int = 1  # how often an epoch visits each clip
    USE_PRECOMPUTED_VOXELS: bool = False
    USE_RAM_CACHE: bool = True
    CACHE_SIZE_GB: float = 32.0
    VAL_SEQUENCES: int = 1
    VAL_CLIPS: int = 2

    def crop_at(self, epoch: int) -> int:
        crop = self.TRAIN_CROP_SIZE
        for first, size in self.CROP_SCHEDULE:
            if epoch >= first:
                crop = size
        return crop


@dataclass(frozen=True, slots=True)
class Loader:
    TOTAL_WORKERS: int | str = 2
    TRAIN_PREFETCH_FACTOR: int = 2
    VAL_PREFETCH_FACTOR: int = 2
    PIN_MEMORY: bool = False
    PERSISTENT_WORKERS: bool = False
    DROP_LAST: bool = True

    @property
    def workers(self) -> int:
        if self.TOTAL_WORKERS == "auto":
            return max(4, int((os.cpu_count() or 1) * 0.8))
        return int(self.TOTAL_WORKERS)


@dataclass(frozen=True, slots=True)
class Train:
    BATCH_SIZE: int = 1
    GRADIENT_ACCUMULATION_STEPS: int = 1
    LR: float = 2e-4
    WARMUP_STEPS: int = 10
    MAX_GRAD_NORM: float = 1.0
    EDGE_WEIGHT: float = 0.1
    AMP_ENABLED: bool = False
    AMP_OPT_LEVEL: str = "O1"
    COMPILE_MODEL: bool = False
    LOG_EVERY: int = 50
    MEMORY_EVERY: int = 100
    EVAL_EVERY: int = 50
    CHECKPOINT_EVERY: int = 50
    EMPTY_CACHE_EVERY: int = 200


@dataclass(frozen=True, slots=True)
class Distill:
    TEACHER: str = ""  # checkpoint of a trained model; empty: no distillation
    WEIGHT: float = 0.5


@dataclass(frozen=True, slots=True)
class Config:
    MODEL: Model = field(default_factory=Model)
    DATA: Data = field(default_factory=Data)
    DATALOADER: Loader = field(default_factory=Loader)
    TRAIN: Train = field(default_factory=Train)
    DISTILL: Distill = field(default_factory=Distill)


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = str(error).splitlines()[0]
        raise DeblurError(f"cannot read config {path}: {reason}; see the configs folder for examples") from None
    if not isinstance(loaded, dict):
        raise DeblurError(f"config {path} holds no mapping; see the configs folder for examples")
    return loaded


def load(path: Path, size: str, options: list[str]) -> Config:
    """The file's values, made small for `tiny`, with the options of the command line on top."""
    config = parse(Config, read_yaml(path), "")
    if size == "tiny":
        config = shrink(config)
    values = dataclasses.asdict(config)
    for option in options:
        _set_option(values, option)
    config = parse(Config, values, "")
    check(config)
    return config


def _set_option(values: dict[str, Any], option: str) -> None:
    key, equals, text = option.partition("=")
    if not equals:
        raise DeblurError(f"--options takes KEY=VALUE, got {option!r}, e.g. TRAIN.BATCH_SIZE=2")
    *sections, last = key.split(".")
    for section in sections:
        _known(section, values, key)
        values = values[section]
        if not isinstance(values, dict):
            raise DeblurError(f"config key {key!r} goes deeper than the config; {section} is a value")
    _known(last, values, key)
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise DeblurError(f"config key {key!r} cannot take {text!r}: no YAML value") from None
    if isinstance(values[last], dict):
        raise DeblurError(f"config key {key!r} is a section; set one of {', '.join(values[last])}")
    values[last] = value


def _known(name: str, values: typing.Iterable[str], key: str) -> None:
    names = list(values)
    if name not in names:
        near = difflib.get_close_matches(name, names, 1) or names
        raise DeblurError(f"unknown config key {key!r}; did you mean {' or '.join(near)}?")


def parse(cls: type[Section], values: Any, where: str) -> Section:
    """A section from plain YAML values; every key must exist and have the right type."""
    if not isinstance(values, dict):
        raise DeblurError(f"config key {where!r} is a section, got {values!r}")
    types = typing.get_type_hints(cls)
    found: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{where}.{name}" if where else str(name)
        _known(str(name), types, key)
        expected: Any = types[name]
        section = dataclasses.is_dataclass(expected)
        found[name] = parse(expected, value, key) if section else _value(expected, value, key)
    return cls(**found)


def _value(expected: Any, value: Any, key: str) -> Any:
    if expected is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if expected in (int, bool, str) and type(value) is expected:
        return value
    if expected == int | str and (value == "auto" or type(value) is int):
        return value
    if typing.get_origin(expected) is tuple and isinstance(value, (list, tuple)):
        return tuple(_value(typing.get_args(expected)[0], item, key) for item in _pairs(value, expected, key))
    raise DeblurError(f"config key {key!r} must be {_kind(expected)}, got {value!r}")


def _pairs(values: Any, expected: Any, key: str) -> Any:
    if typing.get_args(expected)[-1] is not ... and len(values) != len(typing.get_args(expected)):
        raise DeblurError(f"config key {key!r} must be {_kind(expected)}, got {values!r}")
    return values


def _kind(expected: Any) -> str:
    if typing.get_origin(expected) is tuple:
        return "a list of numbers" if int in typing.get_args(expected) else "a list of pairs of numbers"
    kinds = {int: "a whole number", bool: "true or false", str: "text", float: "a number"}
    return kinds.get(expected, 'a whole number or "auto"')


def check(config: Config) -> None:
    """Ranges; a wrong one would show only deep inside a run."""
    model, data, loader, train = config.MODEL, config.DATA, config.DATALOADER, config.TRAIN
    for key, values in (("VRT_DEPTHS", model.VRT_DEPTHS), ("EMBED_DIMS", model.EMBED_DIMS)):
        if len(values) != 8 or min(values) < 1:
            raise DeblurError(f"config key 'MODEL.{key}' needs 8 numbers of at least 1, got {list(values)}")
    for key, chunks in (("FUSE", model.FUSE), ("SPIKE_TSA", model.SPIKE_TSA)):
        if chunks.CHUNK_SHAPE not in ("square", "rows"):
            raise DeblurError(
                f"config key 'MODEL.{key}.CHUNK_SHAPE' must be square or rows, got {chunks.CHUNK_SHAPE!r}"
            )
        _at_least(f"MODEL.{key}.CHUNK_SIZE", chunks.CHUNK_SIZE, 1)
        _at_least(f"MODEL.{key}.HEADS", chunks.HEADS, 1)
    _at_least("MODEL.HEAD_DIM", model.HEAD_DIM, 1)
    _at_least("MODEL.WINDOW_SIZE", model.WINDOW_SIZE, 2)
    for dim in model.EMBED_DIMS:
        if dim % model.HEAD_DIM or dim % model.FUSE.HEADS or dim % model.SPIKE_TSA.HEADS:
            raise DeblurError(
                f"config key 'MODEL.EMBED_DIMS': {dim} cannot be split into the heads; change HEADS or it"
            )
    for crop in (data.TRAIN_CROP_SIZE, *(size for _, size in data.CROP_SCHEDULE)):
        if crop < 8 or crop % 8:
            raise DeblurError(f"config key 'DATA.TRAIN_CROP_SIZE' must be a multiple of 8, got {crop}")
    for key, low in (("CLIP_LENGTH", 1), ("SPIKE_BINS", 1), ("REPEAT", 1), ("VAL_SEQUENCES", 1), ("VAL_CLIPS", 1)):
        _at_least(f"DATA.{key}", getattr(data, key), low)
    _at_least("DATA.CACHE_SIZE_GB", data.CACHE_SIZE_GB, 0)
    for key, low in (("workers", 0), ("TRAIN_PREFETCH_FACTOR", 1), ("VAL_PREFETCH_FACTOR", 1)):
        _at_least(f"DATALOADER.{'TOTAL_WORKERS' if key == 'workers' else key}", getattr(loader, key), low)
    counts = ("BATCH_SIZE", "GRADIENT_ACCUMULATION_STEPS", "LOG_EVERY", "MEMORY_EVERY", "EVAL_EVERY", "WARMUP_STEPS")
    for key in (*counts, "CHECKPOINT_EVERY", "EMPTY_CACHE_EVERY"):
        _at_least(f"TRAIN.{key}", getattr(train, key), 1)


def _at_least(key: str, value: float, low: int) -> None:
    if value < low:
        raise DeblurError(f"config key {key!r} must be at least {low}, got {value}")


def shrink(config: Config) -> Config:
    """The same config for frames of 64×96 on a CPU; presets keep their differences."""
    model, data, train = config.MODEL, config.DATA, config.TRAIN
    small_model = replace(
        model,
        VRT_DEPTHS=tuple(max(1, depth // 4) for depth in model.VRT_DEPTHS),
        EMBED_DIMS=(8, 8, 16, 16, 16, 8, 8, 8),
        HEAD_DIM=8,
        FUSE=_shrink_chunks(model.FUSE),
        SPIKE_TSA=_shrink_chunks(model.SPIKE_TSA),
    )
    small_data = replace(
        data,
        CLIP_LENGTH=min(data.CLIP_LENGTH, 3),
        SPIKE_BINS=max(1, data.SPIKE_BINS // 8),
        TRAIN_CROP_SIZE=data.TRAIN_CROP_SIZE // 8,
        CROP_SCHEDULE=tuple((epoch, size // 8) for epoch, size in data.CROP_SCHEDULE),
        REPEAT=data.REPEAT * 4,
        CACHE_SIZE_GB=data.CACHE_SIZE_GB / 2**15,
    )
    small_train = replace(
        train, LR=train.LR * 5, WARMUP_STEPS=4, LOG_EVERY=10, MEMORY_EVERY=10, EVAL_EVERY=12, CHECKPOINT_EVERY=12
    )
    return replace(config, MODEL=small_model, DATA=small_data, TRAIN=small_train)


def _shrink_chunks(chunks: Chunks) -> Chunks:
    heads = max(1, chunks.HEADS // 2)
    return replace(
        chunks, HEADS=heads, CHUNK_SIZE=chunks.CHUNK_SIZE // 4, MAX_BATCH_TOKENS=chunks.MAX_BATCH_TOKENS // 16
    )
