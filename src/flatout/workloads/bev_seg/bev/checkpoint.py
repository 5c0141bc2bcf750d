"""Checkpoints: what is needed to go on as if nothing had happened."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bev.errors import UserError
from bev.runner import Runner

FORMAT = "bev_seg checkpoint 1"


def state_of(runner: Runner) -> dict[str, Any]:
    """Everything that a run continues from."""
    return {
        "format": FORMAT,
        "size": runner.size,
        "model_config": asdict(runner.config.model),
        "iter": runner.iter,
        "step": runner.step,
        "model": runner.model.state_dict(),
        "optimizer": runner.optimizer.state_dict(),
        "scaler": runner.scaler.state_dict() if runner.scaler is not None else None,
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state(runner.device) if runner.device.type == "cuda" else None,
    }


def write_checkpoint(state: dict[str, Any], out: Path) -> Path:
    """Write it as a whole or not at all, and point latest.pth at it."""
    path = out / f"iter_{state['step']}.pth"
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    os.replace(partial, path)
    link = out / "latest.pth"
    link.unlink(missing_ok=True)
    link.symlink_to(path.name)
    return path


def save_checkpoint(runner: Runner) -> Path:
    """Save the runner's present state."""
    return write_checkpoint(state_of(runner), runner.out)


def resume(runner: Runner, path: Path) -> None:
    """Put the runner where the checkpoint was."""
    state = _load(path)
    if state["size"] != runner.size:
        raise UserError(
            f"--resume {path} is of size {state['size']}, this run is {runner.size}; add --size {state['size']}"
        )
    if state["model_config"] != asdict(runner.config.model):
        raise UserError(
            f"--resume {path} holds another model ({state['model_config']}); use the config it was made with"
        )
    if state["step"] >= runner.max_steps:
        raise UserError(f"--resume {path} is already at step {state['step']}; give --steps above that")
    try:
        runner.model.load_state_dict(state["model"])
        runner.optimizer.load_state_dict(state["optimizer"])
        if runner.scaler is not None and state["scaler"]:
            runner.scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["rng"])
        if runner.device.type == "cuda" and state["cuda_rng"] is not None:
            torch.cuda.set_rng_state(state["cuda_rng"], runner.device)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"--resume {path} does not fit this model: {str(error).splitlines()[0]}") from None
    runner.iter = state["iter"]
    runner.step = state["step"]


def _load(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise UserError(f"--resume {path} does not exist; give a checkpoint such as runs/bev_seg/latest.pth")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises whatever the foreign bytes lead it to
        raise UserError(f"--resume {path} is not a readable checkpoint ({type(error).__name__})") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise UserError(f"--resume {path} is not a checkpoint of bev_seg")
    return state
