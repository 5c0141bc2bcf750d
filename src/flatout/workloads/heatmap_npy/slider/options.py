"""The command line."""

from __future__ import annotations

import argparse
import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch

from slider.config import CONFIGS, SIZES, Config, load_config
from slider.errors import SliderError


@dataclass(frozen=True, slots=True)
class Options:
    config: Config
    data: Path
    steps: int
    seed: int
    out: Path
    resume: Path | None
    device: torch.device
    deterministic: bool
    losses: Path | None
    make_data_only: bool
    make_workers: int


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        raise SliderError(f"{message}; --help lists the flags")


def build_parser() -> Parser:
    parser = Parser(description="Train the slider captcha detector from pre-batched NPY files.", allow_abbrev=False)
    parser.add_argument("--config", type=Path, help="YAML file (default: configs/SIZE.yaml)")
    parser.add_argument("--options", nargs="+", default=[], metavar="KEY=VALUE", help="override config keys")
    parser.add_argument("--data", type=Path, default=Path("data/heatmap_npy"), help="folder of the NPY files")
    parser.add_argument("--size", choices=SIZES, help="default: full with a GPU, otherwise tiny")
    parser.add_argument("--per-file", type=_count, metavar="N", help="samples per file (data.batch_size)")
    parser.add_argument("--files", type=_count, metavar="N", help="training files (data.train_files)")
    parser.add_argument("--steps", type=_count, metavar="N", help="optimizer steps in all (train.steps)")
    parser.add_argument("--seed", type=_seed, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/heatmap_npy"), help="folder of the checkpoint")
    parser.add_argument("--resume", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--deterministic", action="store_true", help="deterministic algorithms only")
    parser.add_argument("--losses", type=Path, metavar="FILE", help="write the loss of every step as JSON")
    parser.add_argument("--make-data-only", action="store_true")
    parser.add_argument("--make-workers", type=_count, metavar="N", help="processes that make the data")
    return parser


def read_options(parsed: argparse.Namespace) -> Options:
    device = _device(parsed.device)
    size = parsed.size or ("full" if device.type == "cuda" else "tiny")
    config = load_config(parsed.config or CONFIGS / f"{size}.yaml", parsed.options)
    if parsed.size and parsed.size != config.size:
        raise SliderError(f"--size {parsed.size} contradicts the config's size {config.size!r}; drop one of them")
    if parsed.losses and (parsed.losses.is_dir() or not parsed.losses.absolute().parent.is_dir()):
        raise SliderError(f"--losses {str(parsed.losses)!r} is not a file in an existing folder; pass another path")
    data = config.data
    files = parsed.files or data.train_files
    data = dataclasses.replace(
        data,
        batch_size=parsed.per_file or data.batch_size,
        train_files=files,
        calibration_files=min(data.calibration_files, files),
    )
    return Options(
        config=dataclasses.replace(config, data=data),
        data=parsed.data,
        steps=parsed.steps or config.train.steps,
        seed=parsed.seed,
        out=parsed.out,
        resume=parsed.resume,
        device=device,
        deterministic=parsed.deterministic,
        losses=parsed.losses,
        make_data_only=parsed.make_data_only,
        make_workers=parsed.make_workers or len(os.sched_getaffinity(0)),
    )


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise SliderError("--device cuda: torch sees no GPU here; use --device cpu or auto")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return number


def _seed(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 2**31:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to {2**31 - 1}, got {text!r}")
    return number
