"""The command line, and what a run hands back by it."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import NoReturn

import torch

from deblur.errors import DeblurError

CONFIGS = Path(__file__).parents[1] / "configs"
DEFAULT_STEPS = {"tiny": 24, "full": 300}


class Parser(argparse.ArgumentParser):
    """One line for a mistake instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"train.py: error: {message}\n")


def _at_least(low: int) -> object:
    def whole_number(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None
        if number < low:
            raise argparse.ArgumentTypeError(f"must be at least {low}, got {number}")
        return number

    return whole_number


def make_parser(description: str) -> Parser:
    parser = Parser(description=description)
    parser.add_argument("--config", type=Path, default=CONFIGS / "baseline.yaml", help="YAML config (configs/)")
    parser.add_argument("--options", nargs="*", default=[], metavar="KEY=VALUE", help="e.g. TRAIN.BATCH_SIZE=2")
    parser.add_argument("--data", type=Path, default=Path("data/spike_deblur"), help="where the data lies or is made")
    parser.add_argument("--size", choices=("tiny", "full"), help="default: full with a GPU, else tiny")
    parser.add_argument("--steps", type=_at_least(1), help="optimizer steps in all")  # type: ignore[arg-type]
    parser.add_argument("--seed", type=_at_least(0), default=0)  # type: ignore[arg-type]
    parser.add_argument("--out", type=Path, default=Path("runs/spike_deblur"), help="checkpoints")
    parser.add_argument("--resume", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--deterministic", action="store_true", help="the same losses in every run")
    parser.add_argument("--losses", type=Path, metavar="FILE", help="write the loss of every step as JSON")
    parser.add_argument("--make-data-only", action="store_true")
    parser.add_argument("--make-workers", type=_at_least(1), default=os.cpu_count() or 1)  # type: ignore[arg-type]
    return parser


def complete(args: argparse.Namespace) -> None:
    """Fill in what depends on the machine, and set torch up."""
    if args.device == "cuda" and not torch.cuda.is_available():
        raise DeblurError("--device cuda: no CUDA device here; use --device cpu")
    args.device = torch.device("cuda" if args.device != "cpu" and torch.cuda.is_available() else "cpu")
    args.size = args.size or ("full" if args.device.type == "cuda" else "tiny")
    args.steps = args.steps or DEFAULT_STEPS[args.size]
    if args.size == "tiny":
        torch.set_num_threads(1)  # handing out pieces of so small tensors costs more than it gains
    if args.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    torch.manual_seed(args.seed)


def write_losses(path: Path, losses: list[float]) -> None:
    try:
        path.write_text(json.dumps(losses))
    except OSError as error:
        raise DeblurError(f"cannot write --losses {path}: {error.strerror}") from None
