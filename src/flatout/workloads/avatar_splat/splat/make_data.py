"""Makes the data: pictures of a hidden avatar, taken by a rig of cameras over a short performance."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from splat.config import EXPRESSIONS, JOINTS, Preset
from splat.dataset import FAR, NEAR
from splat.errors import UserError
from splat.gaussians import GaussianModel
from splat.harmonics import C0, TERMS
from splat.mesh import Head, head
from splat.render import View, render

_SEED = 306
_VERSION = 1
_DISTANCE = 4.0
_MARKER = "finished.json"
# What a preset says about training does not change the pictures.
_DATA_KEYS = ("size", "hidden_gaussians", "mesh_level", "per_tile", "frame_height", "frame_width")
_RIG_KEYS = ("cameras", "timesteps", "test_frames")


def ensure(root: Path, preset: Preset, workers: int, device: torch.device) -> Path:
    """The folder of this size's data, made first when it is missing."""
    folder = root / preset.size
    recipe = {"version": _VERSION, **{key: asdict(preset)[key] for key in _DATA_KEYS + _RIG_KEYS}}
    marker = folder / _MARKER
    try:
        if marker.exists() and json.loads(marker.read_text()) == recipe:
            return folder
        if folder.exists() and not marker.exists():
            raise UserError(f"'{folder}' holds no finished data: remove it, or choose another folder with --data")
        partial = root / f".{preset.size}-{os.getpid()}"
        partial.mkdir(parents=True)
        try:
            _make(partial, preset, workers, device)
            (partial / _MARKER).write_text(json.dumps(recipe))
            if folder.exists():
                shutil.rmtree(folder)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except (OSError, ValueError, BrokenExecutor) as error:
        raise UserError(f"cannot make data in '{root}': {error}; choose another folder with --data") from None
    return folder


def _make(folder: Path, preset: Preset, workers: int, device: torch.device) -> None:
    frames = _frames(preset)
    (folder / "images").mkdir()
    # Starting a process costs about as much as a few dozen small frames.
    workers = min(workers, len(frames) // 16) if preset.frame_width > 100 else 1
    if workers <= 1:
        _render_and_write(folder, preset, frames, str(device))
    elif device.type == "cuda":
        # One renderer on the device, many processes to compress its pictures.
        with _pool(workers) as pool:
            writing = [pool.submit(_write, folder, *job) for job in _pictures(preset, frames, device)]
            for job in writing:
                job.result()
    else:
        with _pool(workers) as pool:
            shares = [pool.submit(_render_and_write, folder, preset, frames[i::workers], "cpu") for i in range(workers)]
            for share in shares:
                share.result()
    (folder / "frames.json").write_text(json.dumps(frames))


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    )


def _render_and_write(folder: Path, preset: Preset, frames: list[dict[str, Any]], device: str) -> None:
    for job in _pictures(preset, frames, torch.device(device)):
        _write(folder, *job)


def _write(folder: Path, file: str, picture: NDArray[np.uint8]) -> None:
    Image.fromarray(_grained(picture, file)).save(folder / file)


def _frames(preset: Preset) -> list[dict[str, Any]]:
    """Every picture to take: camera, pose, split."""
    frames = []
    for camera in range(preset.cameras):
        for timestep in range(preset.timesteps):
            file = f"images/train_{camera:02d}_{timestep:03d}.png"
            pose = _pose(timestep / preset.timesteps)
            frames.append({"file": file, "split": "train", **_camera(camera / (preset.cameras - 1), preset), **pose})
    for i in range(preset.test_frames):
        # Between the training cameras and between their moments.
        along, moment = (i + 0.37) / preset.test_frames, ((7 * i) % preset.test_frames + 0.5) / preset.test_frames
        file = f"images/test_{i:03d}.png"
        frames.append({"file": file, "split": "test", **_camera(along, preset), **_pose(moment)})
    return frames


def _camera(along: float, preset: Preset) -> dict[str, Any]:
    """A camera on an arc in front of the face; `along` goes from 0 to 1."""
    azimuth = math.radians(-65 + 130 * along)
    height = 0.5 * math.sin(7.0 * along)
    position = np.array([math.sin(azimuth) * _DISTANCE, height, math.cos(azimuth) * _DISTANCE])
    return looking_at_head(position, preset.frame_height, preset.frame_width)


def looking_at_head(position: NDArray[np.float64], height: int, width: int) -> dict[str, Any]:
    """Camera facts for one that looks at the middle of the head (x right, y down, z forward)."""
    forward = -position / np.linalg.norm(position)
    right = np.cross(forward, [0.0, 1.0, 0.0])
    right /= np.linalg.norm(right)
    turn = np.stack([right, np.cross(forward, right), forward])
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = turn, -turn @ position
    focal = 1.55 * width
    return {
        "size": [width, height],
        "matrix": matrix.tolist(),
        "focal": [focal, focal],
        "centre": [width / 2, height / 2],
        "position": position.tolist(),
    }


def _pose(moment: float) -> dict[str, Any]:
    """The head's pose at a moment of the performance, 0 to 1."""
    phase = 2 * math.pi * moment
    expression = [0.5 + 0.5 * math.sin(phase * (1 + i % 3) + 0.8 * i) for i in range(EXPRESSIONS)]
    rotation = [[0.0] * 3 for _ in range(JOINTS)]
    rotation[0] = [0.08 * math.sin(phase), 0.2 * math.sin(2 * phase), 0.05 * math.cos(phase)]
    rotation[1] = [0.12 + 0.12 * math.sin(3 * phase), 0.0, 0.0]
    translation = [0.03 * math.sin(phase), 0.02 * math.cos(2 * phase), 0.0]
    return {"expression": expression, "rotation": rotation, "translation": translation}


@torch.no_grad()
def _pictures(
    preset: Preset, frames: list[dict[str, Any]], device: torch.device
) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    mesh = head(preset.mesh_level, device)
    avatar = _hidden_avatar(mesh, preset.hidden_gaussians, device)
    for frame in frames:

        def numbers(name: str, frame: dict[str, Any] = frame) -> torch.Tensor:
            return torch.tensor([frame[name]], dtype=torch.float32, device=device)

        view = View(
            matrix=numbers("matrix"),
            focal=numbers("focal"),
            centre=numbers("centre"),
            position=numbers("position"),
            depth_range=torch.tensor([[NEAR, FAR]], device=device),
            background=torch.zeros(1, 3, device=device),
        )
        posed = avatar.posed(mesh.posed(numbers("expression"), numbers("rotation"), numbers("translation")))
        rendered = render(posed, view, preset.frame_height, preset.frame_width, preset.per_tile)
        alpha = rendered.alpha[0]
        straight = rendered.image[0] / alpha.clamp(min=1e-4)
        levels = (torch.cat([straight, alpha]).clamp(0, 1) * 255).round().byte()
        yield frame["file"], levels.permute(1, 2, 0).contiguous().cpu().numpy()


def _grained(rgba: NDArray[np.uint8], file: str) -> NDArray[np.uint8]:
    """A little sensor noise on the subject."""
    generator = np.random.default_rng([_SEED, *file.encode()])
    noise = generator.normal(0, 1.5, rgba.shape[:2]).round() * (rgba[..., 3] > 0)
    noisy = rgba.astype(np.int16)
    noisy[..., :3] += noise.astype(np.int16)[..., None]
    pixels: NDArray[np.uint8] = noisy.clip(0, 255).astype(np.uint8)
    return pixels


def _hidden_avatar(mesh: Head, count: int, device: torch.device) -> GaussianModel:
    """The avatar in the pictures: skin, hair, eyes, lips and a little shine."""
    generator = torch.Generator().manual_seed(_SEED)
    binding = torch.arange(count) % len(mesh.faces)
    spread = 0.55 / max(1.0, count / len(mesh.faces)) ** 0.5
    rotation = torch.randn(count, 4, generator=generator) * 0.2
    rotation[:, 0] = 1
    scaling = torch.full((count, 3), spread).log() + torch.randn(count, 3, generator=generator) * 0.25
    scaling[:, 2] -= 1.0
    offset = torch.randn(count, 3, generator=generator) * torch.tensor([0.3, 0.3, 0.05])
    place = mesh.template.cpu()[mesh.faces.cpu()[binding]].mean(1)
    tone = _tones(place) + torch.randn(count, 3, generator=generator) * 0.03
    values = {
        "xyz": offset,
        "rotation": rotation,
        "scaling": scaling,
        "opacity": torch.full((count, 1), 0.9).logit(),
        "sh_dc": ((tone.clamp(0, 1) - 0.5) / C0).unsqueeze(1),
        "sh_rest": torch.randn(count, TERMS - 1, 3, generator=generator) * 0.03,
    }
    return GaussianModel({name: value.to(device) for name, value in values.items()}, binding.to(device))


def _tones(place: torch.Tensor) -> torch.Tensor:
    """Colours by place on the template."""
    x, y, z = place.unbind(1)
    tone = torch.tensor([0.82, 0.62, 0.52]).repeat(len(place), 1)
    tone *= (1 + 0.08 * torch.sin(9 * x) * torch.sin(11 * y)).unsqueeze(1)
    hair = (y > 0.55 + 0.1 * torch.sin(14 * x)) | ((z < -0.1) & (y > -0.5))
    tone[hair] = torch.tensor([0.22, 0.14, 0.10])
    for side in (-0.28, 0.28):
        distance = ((x - side) ** 2 + (y - 0.2) ** 2).sqrt()
        tone[(distance < 0.13) & (z > 0)] = torch.tensor([0.95, 0.95, 0.95])
        tone[(distance < 0.06) & (z > 0)] = torch.tensor([0.10, 0.25, 0.40])
    tone[((x / 0.25) ** 2 + ((y + 0.45) / 0.08) ** 2 < 1) & (z > 0)] = torch.tensor([0.70, 0.25, 0.28])
    return tone
