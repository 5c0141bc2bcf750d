"""The command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import torch

from graycnn.errors import UsageError
from graycnn.sizes import SIZES


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the list of all flags."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see --help")


def at_least(least: int) -> Callable[[str], int]:
    """A whole number not below `least`."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None
        if number < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {number}")
        return number

    return read


def positive(text: str) -> float:
    """A number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return number


def make_parser() -> Parser:
    """Every flag with its default; those that depend on the size are filled in by `parse`."""
    parser = Parser(prog="train.py", description="Train a classifier of grey surface images.", allow_abbrev=False)
    parser.add_argument("--data", type=Path, default=Path("data/gray_cnn"), help="folder of the images")
    parser.add_argument("--out", type=Path, default=Path("runs/gray_cnn"), help="folder for checkpoints")
    parser.add_argument("--size", choices=sorted(SIZES), help="default: full on a GPU, else tiny")
    parser.add_argument("--steps", type=at_least(1), help="optimizer steps in all; default by size")
    parser.add_argument("--seed", type=at_least(0), default=0)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--resume", type=Path, metavar="CHECKPOINT", help="go on from this checkpoint")
    parser.add_argument("--deterministic", action="store_true", help="bit for bit the same at the same seed")
    parser.add_argument("--losses", type=Path, metavar="FILE", help="write the loss of every step there, as JSON")
    parser.add_argument("--make-data-only", action="store_true", help="make the images and stop")
    parser.add_argument("--make-workers", type=at_least(1), default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--batch-size", type=at_least(1), default=64)
    parser.add_argument("--num-workers", type=at_least(0), default=0, help="loader processes")
    parser.add_argument("--learning-rate", type=positive, help="after the warm-up; default by size")
    parser.add_argument("--weight-decay", type=positive, default=0.01)
    parser.add_argument("--epoch-images", type=at_least(1), help="images of one epoch; default by size")
    parser.add_argument("--eval-interval", type=at_least(1), default=1, help="epochs between evaluations")
    parser.add_argument("--checkpoint-interval", type=at_least(1), default=1, help="epochs between checkpoints")
    return parser


def parse(parser: Parser, arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line, choose the device, and fill in what depends on either."""
    opt = parser.parse_args(arguments)
    if opt.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: this machine has no CUDA device; leave the flag out")
    if opt.device == "auto":
        opt.device = "cuda" if torch.cuda.is_available() else "cpu"
    size = SIZES[opt.size or ("full" if opt.device == "cuda" else "tiny")]
    opt.size = size.name
    opt.steps = opt.steps or size.steps
    opt.learning_rate = opt.learning_rate or size.learning_rate
    opt.epoch_images = opt.epoch_images or size.epoch_images
    return opt
