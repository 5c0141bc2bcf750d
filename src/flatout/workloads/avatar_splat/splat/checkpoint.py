"""Saving and resuming."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from splat.errors import UserError
from splat.gaussians import FIELDS
from splat.training import Training

_KIND = "avatar_splat"


def save(path: Path, training: Training, size: str) -> None:
    """Write a checkpoint; a run that is killed meanwhile leaves the older file whole."""
    state = {
        "kind": _KIND,
        "size": size,
        "step": training.step,
        "samples": training.samples,
        "parameters": {name: training.model[name].detach() for name in FIELDS},
        "binding": training.model.binding,
        "optimizer": training.optimizer.state_dict(),
        "stats": training.stats.state(),
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    os.replace(partial, path)


def load(path: Path, size: str, device: torch.device) -> dict[str, Any]:
    """Read a checkpoint of this workload and size."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"--resume '{path}' does not exist: give a checkpoint from the --out folder") from None
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile):
        raise UserError(f"--resume '{path}' is no checkpoint: give one from the --out folder") from None
    if not isinstance(state, dict) or state.get("kind") != _KIND:
        raise UserError(f"--resume '{path}' is no checkpoint of {_KIND}: give one from the --out folder")
    if state["size"] != size:
        raise UserError(
            f"--resume '{path}' was saved with --size {state['size']}, this run has --size {size}: use the same"
        )
    for name in FIELDS:
        state["parameters"][name] = state["parameters"][name].to(device)
    state["binding"] = state["binding"].to(device)
    return state


def restore(training: Training, state: dict[str, Any]) -> None:
    """Put the rest of a checkpoint into a training whose model was made from it."""
    training.optimizer.load_state_dict(state["optimizer"])
    training.stats.load(state["stats"])
    training.step, training.samples = state["step"], state["samples"]
    torch.set_rng_state(state["rng"])
    if state["cuda_rng"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda_rng"])
