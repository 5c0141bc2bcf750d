"""Saves the state of a training run and takes it up again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from graycnn.errors import UsageError

FORMAT = "graycnn checkpoint 1"


def state_of(model: nn.Module, optimizer: Optimizer, size: str, step: int, seen: int, best: float) -> dict[str, Any]:
    """Everything a run needs to go on: `seen` is how many images it has drawn, `best` its best accuracy so far."""
    bare = model.module if isinstance(model, nn.DataParallel) else model
    return {
        "format": FORMAT,
        "size": size,
        "step": step,
        "seen": seen,
        "best": best,
        "model": bare.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def save(path: Path, state: dict[str, Any]) -> None:
    """Write beside the old file first: a run stopped meanwhile still has that one."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    torch.save(state, unfinished)
    os.replace(unfinished, path)


def load(path: Path, size: str) -> dict[str, Any]:
    """A checkpoint of a run of this size."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UsageError(f"--resume {str(path)!r} does not exist; give a .pt file of an earlier run's --out") from None
    except Exception:
        state = None  # torch says in many ways that a file is not its own
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise UsageError(f"--resume {str(path)!r} is no checkpoint of this project; give last.pt of an earlier --out")
    if state["size"] != size:
        raise UsageError(f"--resume {str(path)!r} is of --size {state['size']}, not {size}; resume it with that size")
    return state


def restore(state: dict[str, Any], model: nn.Module, optimizer: Optimizer) -> None:
    """Put a loaded state into the model, the optimizer and the random generators."""
    bare = model.module if isinstance(model, nn.DataParallel) else model
    bare.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    if torch.cuda.is_available() and len(state["cuda_rng"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda_rng"])
