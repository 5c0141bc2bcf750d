"""Saves and restores a run."""

from __future__ import annotations

import dataclasses
import os
import pickle
from pathlib import Path
from typing import Any

import torch
from torch import nn

from deblur.config import Model, parse
from deblur.errors import DeblurError

FORMAT = "spike_deblur/1"


def save(path: Path, size: str, model_config: Model, state: dict[str, Any]) -> None:
    """Written beside its final place first, so that an interrupted run leaves the previous one whole."""
    rng: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        rng["cuda"] = torch.cuda.get_rng_state()
    partial = path.with_suffix(".partial")
    content = {"format": FORMAT, "size": size, "model_config": dataclasses.asdict(model_config), "rng": rng, **state}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(content, partial)
        os.replace(partial, path)
    except (OSError, RuntimeError) as error:
        raise DeblurError(f"cannot write checkpoint {path}: {error}; choose another folder with --out") from None


def read(path: Path, size: str) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise DeblurError(f"no checkpoint {path}; give the file that a run wrote under --out") from None
    except (OSError, RuntimeError, pickle.UnpicklingError, EOFError, ValueError, KeyError):
        raise DeblurError(
            f"{path} is no checkpoint of this project; give the file that a run wrote under --out"
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DeblurError(f"{path} is no checkpoint of this project; give the file that a run wrote under --out")
    if content["size"] != size:
        raise DeblurError(
            f"checkpoint {path} is of size {content['size']}, this run is {size}; use --size {content['size']}"
        )
    return content


def model_config(content: dict[str, Any]) -> Model:
    return parse(Model, content["model_config"], "MODEL")


def load_model(model: nn.Module, content: dict[str, Any], path: Path) -> None:
    try:
        model.load_state_dict(content["model"])
    except RuntimeError:
        depths = content["model_config"]["VRT_DEPTHS"]
        raise DeblurError(
            f"checkpoint {path} is of another model (depths {list(depths)}); use the config it was made with"
        ) from None


def restore_rng(content: dict[str, Any]) -> None:
    torch.set_rng_state(content["rng"]["cpu"])
    if "cuda" in content["rng"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(content["rng"]["cuda"])
