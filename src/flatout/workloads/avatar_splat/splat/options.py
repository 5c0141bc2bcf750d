"""The command line."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

import torch

from splat.config import PRESETS, Preset
from splat.errors import UserError


class Options(argparse.Namespace):
    """What the command line says, with the size's defaults filled in."""

    data: Path
    size: str
    steps: int
    seed: int
    out: Path
    resume: Path | None
    device: str
    deterministic: bool
    losses: Path | None
    make_data_only: bool
    make_workers: int
    cameras_per_step: int
    lr_scale: float
    eval_interval: int
    vis_images: int
    densify_threshold: float
    densify_interval: int
    checkpoint_interval: int
    viewer: str
    viewer_fps: float
    port: int
    backend: str

    @property
    def preset(self) -> Preset:
        return PRESETS[self.size]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        print(f"train.py: error: {message} (see train.py --help)", file=sys.stderr)
        raise SystemExit(2)


def parser(description: str) -> Parser:
    """The flags of the training script."""
    made = Parser(prog="train.py", description=description, allow_abbrev=False)
    add = made.add_argument
    add("--data", type=Path, default=Path("data/avatar_splat"), help="folder of the data, made when missing")
    add("--size", choices=sorted(PRESETS), help="default: full with a GPU, else tiny")
    add("--steps", type=int, help="optimizer steps in all")
    add("--seed", type=int, default=0)
    add("--out", type=Path, default=Path("runs/avatar_splat"), help="folder of checkpoints and logs")
    add("--resume", type=Path, help="checkpoint to go on from")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto")
    add("--deterministic", action="store_true", help="only algorithms that give the same bits every time")
    add("--losses", type=Path, help="write the loss of every step to this JSON file")
    add("--make-data-only", action="store_true", help="make the data and stop")
    add("--make-workers", type=int, default=len(os.sched_getaffinity(0)), help="processes that make the data")
    add("--cameras-per-step", type=int, default=1, help="cameras rendered together in a step")
    add("--lr-scale", type=float, default=1.0, help="factor on all learning rates")
    add("--eval-interval", type=int, help="steps between evaluations")
    add("--vis-images", type=int, default=10, help="pictures logged per evaluation")
    add("--densify-threshold", type=float, default=2e-4, help="screen gradient from which Gaussians multiply")
    add("--densify-interval", type=int, help="steps between densifications")
    add("--checkpoint-interval", type=int, help="steps between checkpoints")
    add("--viewer", choices=["on", "paused", "off"], default="on", help="live viewer")
    add("--viewer-fps", type=float, default=30.0, help="refreshes of the viewer's window per second")
    add("--port", type=int, default=60000, help="TCP port of the viewer")
    add("--backend", choices=["torch", "gsplat"], default="torch", help="rasteriser")
    return made


def parse(made: Parser, argv: list[str] | None) -> Options:
    """Read the command line and check it."""
    options = made.parse_args(argv, namespace=Options())
    if getattr(options, "size", None) is None:
        options.size = "full" if torch.cuda.is_available() and options.device != "cpu" else "tiny"
    for name in ("steps", "eval_interval", "checkpoint_interval", "densify_interval"):
        if getattr(options, name) is None:
            setattr(options, name, getattr(options.preset, name))
        _at_least(made, options, name, 1)
    for name in ("make_workers", "cameras_per_step"):
        _at_least(made, options, name, 1)
    for name in ("seed", "vis_images", "densify_threshold"):
        _at_least(made, options, name, 0)
    for name in ("lr_scale", "viewer_fps"):
        if not getattr(options, name) > 0:
            made.error(f"--{name.replace('_', '-')} must be more than 0, got {getattr(options, name)}")
    if not 0 <= options.port <= 65535:
        made.error(f"--port must be between 0 and 65535, got {options.port}")
    return options


def _at_least(made: Parser, options: Options, name: str, least: int) -> None:
    value = getattr(options, name)
    if not value >= least:
        made.error(f"--{name.replace('_', '-')} must be at least {least}, got {value}")


def chosen_device(options: Options) -> torch.device:
    """The device to train on."""
    available = torch.cuda.is_available()
    if options.device == "cuda" and not available:
        raise UserError("--device cuda: this machine has no CUDA device; use --device cpu")
    return torch.device("cuda" if available and options.device != "cpu" else "cpu")


def make_deterministic() -> None:
    """Only algorithms that give the same bits every time."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
