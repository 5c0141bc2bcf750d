"""Saving a run and taking it up again."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from slider.config import Config
from slider.errors import SliderError

FORMAT = "slider-1"


def snapshot(model: nn.Module, optimizer: Optimizer, step: int, samples: int, config: Config) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "size": config.size,
        "model_config": {**asdict(config.model), "blocks": list(config.model.blocks)},
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": step,
        "samples": samples,
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def write(state: dict[str, Any], path: Path) -> None:
    """A run that is killed here leaves the checkpoint before intact."""
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, part)
        os.replace(part, path)
    except (OSError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise SliderError(f"cannot write checkpoint {str(path)!r}: {reason}; pass another --out") from None


def prepare_folder(folder: Path) -> None:
    """Find out before the training, not after it, that nothing can be saved."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SliderError(f"cannot use --out {str(folder)!r}: {error.strerror}; pass another folder") from None


def read(path: Path, config: Config, steps: int) -> dict[str, Any]:
    if not path.is_file():
        raise SliderError(f"checkpoint {str(path)!r} does not exist; pass the last.pt of an --out folder")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # torch.load fails in as many ways as there are files
        state = None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise SliderError(f"{str(path)!r} is no checkpoint of this project; pass the last.pt of an --out folder")
    if state["size"] != config.size:
        raise SliderError(f"checkpoint {str(path)!r} is of size {state['size']!r}; pass --size {state['size']}")
    if state["model_config"] != {**asdict(config.model), "blocks": list(config.model.blocks)}:
        raise SliderError(f"checkpoint {str(path)!r} is of another network; use the config it was trained with")
    if state["step"] >= steps:
        raise SliderError(f"checkpoint {str(path)!r} is at step {state['step']} already; pass a larger --steps")
    return state


def restore(state: dict[str, Any], model: nn.Module, optimizer: Optimizer) -> tuple[int, int]:
    """Steps and samples already done."""
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    if state["cuda_rng"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda_rng"])
    return int(state["step"]), int(state["samples"])
