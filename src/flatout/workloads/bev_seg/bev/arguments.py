"""The command line."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import NoReturn

import torch

from bev.config import CONFIGS, SIZES
from bev.errors import UserError


class Arguments(argparse.Namespace):
    """What the user asked for."""

    config: Path
    options: list[str]
    data: Path
    size: str | None
    steps: int | None
    seed: int
    out: Path
    resume: Path | None
    device: str
    deterministic: bool
    losses: Path | None
    make_data_only: bool
    make_workers: int


class Parser(argparse.ArgumentParser):
    """Bad flags become an ordinary error of one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see --help")


def make_parser(description: str) -> Parser:
    """All flags of the training script."""
    parser = Parser(prog="train.py", description=description)
    parser.add_argument(
        "--config", type=Path, default=CONFIGS / "lss_swin.py", help="config file (default lss_swin.py)"
    )
    parser.add_argument("--options", nargs="+", default=[], metavar="KEY=VALUE", help="change config values")
    parser.add_argument("--data", type=Path, default=Path("data/bev_seg"), help="folder of the data, made if missing")
    parser.add_argument("--size", choices=SIZES, help="default: full with a GPU, else tiny")
    parser.add_argument("--steps", type=_count(1), help="optimizer steps in all (default: runner.max_iters)")
    parser.add_argument("--seed", type=_count(0), default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/bev_seg"), help="folder for checkpoints and logs")
    parser.add_argument("--resume", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--deterministic", action="store_true", help="the same numbers in every run")
    parser.add_argument("--losses", type=Path, metavar="FILE", help="write the loss of every step as JSON")
    parser.add_argument("--make-data-only", action="store_true", help="make the data and stop")
    parser.add_argument("--make-workers", type=_count(1), default=len(os.sched_getaffinity(0)), metavar="N")
    return parser


class _Counter:
    def __init__(self, least: int) -> None:
        self.least = least

    def __call__(self, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None
        if number < self.least:
            raise argparse.ArgumentTypeError(f"must be at least {self.least}, got {number}")
        return number


def _count(least: int) -> _Counter:
    return _Counter(least)


def choose_device(name: str) -> torch.device:
    """The device asked for, or the best there is."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda, but torch sees no CUDA device; use --device cpu")
    return torch.device(name)


def prepare_out(arguments: Arguments) -> None:
    """The folders that results go to, before hours of training are spent on them."""
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
        if arguments.losses is not None:
            arguments.losses.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot write to {error.filename}: {error.strerror}; choose another --out or --losses"
        ) from None


def prepare_torch(seed: int, deterministic: bool, device: torch.device) -> None:
    """Seeds, and determinism where asked for."""
    torch.manual_seed(seed)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
        # On CUDA cumsum is listed as not deterministic (its one-dimensional form is not), so there it can only warn.
        torch.use_deterministic_algorithms(True, warn_only=device.type == "cuda")
