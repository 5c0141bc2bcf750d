"""What surrounds a training run: its settings before it, its figures after it."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch

from graycnn.errors import UsageError
from graycnn.trainer import Outcome


def be_deterministic() -> None:
    """The same numbers in every run with the same seed."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def make_folders(opt: argparse.Namespace) -> None:
    """Have the places to write to before hours of training, not after."""
    folders: list[Path] = [opt.out] if opt.losses is None else [opt.out, opt.losses.parent]
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write to {str(folder)!r} ({error.strerror}); choose another folder") from None


def report(opt: argparse.Namespace, outcome: Outcome) -> None:
    """The last line, and the losses if asked for."""
    if opt.losses is not None:
        opt.losses.write_text(json.dumps(outcome.losses))
    figures = f"accuracy={outcome.scores.accuracy:.4f} f1={outcome.scores.f1:.4f}"
    print(f"final: steps={outcome.step} loss={outcome.losses[-1]:.6f} {figures}")
