"""Makes the data: panning scenes with moving objects, their motion blur, and what a spike camera would have seen."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deblur.errors import DeblurError
from deblur.voxel import Bytes, SpikeShape, read_packed, voxelise

DATA_SEED = 20251021
FINISHED = "finished.json"
FRAMES_PER_TASK = 5
SUBFRAMES = 8  # exposures averaged into one blurry frame
MARGIN = 192  # how far a scene may pan, in pixels of a 720-line frame


@dataclass(frozen=True, slots=True)
class DataShape:
    """What is on disk: sequences of frames with their spikes."""

    sequences: int
    frames: int
    height: int
    width: int
    spike_steps: int
    spike_rows: int
    spike_columns: int

    @property
    def spikes(self) -> SpikeShape:
        return SpikeShape(self.spike_steps, self.spike_rows, self.spike_columns)


SHAPES = {
    "tiny": DataShape(2, 8, 64, 96, 26, 20, 32),
    "full": DataShape(20, 30, 720, 1280, 202, 250, 400),
}


def frame_paths(root: Path, sequence: int, frame: int) -> tuple[Path, Path, Path]:
    """Blurry image, sharp image and spikes of a frame."""
    folder = root / f"seq{sequence:02d}"
    return (
        folder / "blur" / f"{frame:03d}.png",
        folder / "sharp" / f"{frame:03d}.png",
        folder / "spike" / f"{frame:03d}.dat",
    )


def voxel_path(root: Path, sequence: int, frame: int) -> Path:
    """Where the voxels of a frame lie when they are computed beforehand."""
    return root / f"seq{sequence:02d}" / "voxel" / f"{frame:03d}.npy"


@dataclass(frozen=True, slots=True)
class Scene:
    """A textured background and a few textured discs, each with a path of its own."""

    shape: DataShape
    margin: int
    background: Bytes
    discs: list[tuple[Bytes, NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64]]]
    phase: NDArray[np.float64]

    def at(self, time: float) -> Bytes:
        """The image at a time in frames."""
        height, width = self.shape.height, self.shape.width
        swing = np.sin(self.phase + time * np.array([0.31, 0.23])) * 0.5 + 0.5
        top, left = (swing * self.margin).astype(int)
        image = self.background[top : top + height, left : left + width].copy()
        for texture, mask, start, velocity in self.discs:
            size = len(mask)
            room = np.array([height - size, width - size])
            place = np.abs((start + velocity * time) % (2 * room) - room).astype(int)  # bounces at the borders
            window = image[place[0] : place[0] + size, place[1] : place[1] + size]
            window[mask] = texture[mask]
        return image


def _texture(rng: np.random.Generator, height: int, width: int) -> Bytes:
    """Smooth noise in octaves with fine grain on top."""
    total = np.zeros((height, width, 3), dtype=np.float32)
    for octave, share in ((24, 0.5), (96, 0.3), (8, 0.2)):
        coarse = rng.integers(0, 256, (max(2, height // octave), max(2, width // octave), 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BILINEAR)
        total += np.asarray(image, dtype=np.float32) * share
    grain = rng.integers(-2, 3, (height, width, 1), dtype=np.int8)
    texture: Bytes = np.clip(total + grain, 0, 255).astype(np.uint8)
    return texture


def make_scene(sequence: int, shape: DataShape) -> Scene:
    rng = np.random.default_rng([DATA_SEED, sequence])
    margin = MARGIN * shape.height // 720
    discs = []
    for _ in range(5):
        size = int(shape.height * rng.uniform(0.12, 0.3))
        across = np.arange(size) - (size - 1) / 2
        mask = across[:, None] ** 2 + across**2 < (size / 2) ** 2
        start = rng.uniform(0, 4, 2) * shape.height
        velocity = rng.uniform(-0.05, 0.05, 2) * shape.height
        discs.append((_texture(rng, size, size), mask, start, velocity))
    background = _texture(rng, shape.height + margin, shape.width + margin)
    return Scene(shape, margin, background, discs, rng.uniform(0, 6.28, 2))


def _spikes(exposures: list[Bytes], shape: DataShape, offset: NDArray[np.float32]) -> Bytes:
    """Integrate and fire: a pixel fires whenever its summed light passes the next whole number."""
    rows = np.arange(shape.spike_rows) * shape.height // shape.spike_rows
    columns = np.arange(shape.spike_columns) * shape.width // shape.spike_columns
    light = np.stack([image[rows[:, None], columns].mean(axis=-1, dtype=np.float32) / 512 for image in exposures])
    steps = np.arange(shape.spike_steps) * len(exposures) // shape.spike_steps
    charge = np.cumsum(light[steps], axis=0, dtype=np.float32) + offset
    fired = np.diff(np.floor(charge), axis=0, prepend=np.floor(offset)[None]) > 0
    return np.packbits(fired, axis=-1)


def make_frames(root: Path, sequence: int, frames: range, shape: DataShape) -> None:
    scene = make_scene(sequence, shape)
    for frame in frames:
        blur_path, sharp_path, spike_path = frame_paths(root, sequence, frame)
        for path in (blur_path, sharp_path, spike_path):
            path.parent.mkdir(parents=True, exist_ok=True)
        exposures = [scene.at(frame + i / SUBFRAMES) for i in range(SUBFRAMES)]
        total = np.zeros(exposures[0].shape, dtype=np.uint16)
        for image in exposures:
            total += image
        Image.fromarray((total // SUBFRAMES).astype(np.uint8)).save(blur_path, compress_level=3)
        Image.fromarray(exposures[SUBFRAMES // 2]).save(sharp_path, compress_level=3)
        rng = np.random.default_rng([DATA_SEED, sequence, frame])
        offset = rng.random((shape.spike_rows, shape.spike_columns), dtype=np.float32)
        _spikes(exposures, shape, offset).tofile(spike_path)


def _tasks(shape: DataShape) -> Iterator[tuple[int, range]]:
    for sequence in range(shape.sequences):
        for first in range(0, shape.frames, FRAMES_PER_TASK):
            yield sequence, range(first, min(first + FRAMES_PER_TASK, shape.frames))


def make_data(data: Path, size: str, workers: int) -> Path:
    """The folder with the finished data of this size; made first where it is missing."""
    shape, folder = SHAPES[size], data / size
    if folder.exists():
        _check_finished(folder, shape)
        return folder
    partial = data / f".{size}.partial-{os.getpid()}"
    try:
        partial.mkdir(parents=True)
        _in_parallel(make_frames, partial, shape, workers=workers)
        (partial / FINISHED).write_text(json.dumps(asdict(shape)))
        partial.rename(folder)
    except (OSError, BrokenProcessPool) as error:
        raise DeblurError(f"cannot make the data under {data}: {error}; choose another folder with --data") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def make_voxels(root: Path, size: str, bins: int, workers: int) -> None:
    """Voxels of every frame on disk, where they are missing: faster to read than to compute, but 112 MiB each."""
    shape = SHAPES[size]
    try:
        _in_parallel(_make_voxels, root, shape, bins, workers=workers)
    except (OSError, BrokenProcessPool) as error:
        raise DeblurError(f"cannot write voxels under {root}: {error}; choose another folder with --data") from None


def _make_voxels(root: Path, sequence: int, frames: range, shape: DataShape, bins: int) -> None:
    for frame in frames:
        path = voxel_path(root, sequence, frame)
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.npy")
        packed = read_packed(frame_paths(root, sequence, frame)[2], shape.spikes)
        np.save(partial, voxelise(packed, bins, shape.height, shape.width))
        partial.rename(path)


def _in_parallel(make: Callable[..., None], root: Path, shape: DataShape, *rest: int, workers: int) -> None:
    tasks = list(_tasks(shape))
    if workers == 1 or shape.height < 100:  # a pool costs more than making so little
        for sequence, frames in tasks:
            make(root, sequence, frames, shape, *rest)
        return
    # Forked, so that the children need not import torch again.
    with ProcessPoolExecutor(min(workers, len(tasks)), multiprocessing.get_context("fork")) as pool:
        for done in [pool.submit(make, root, sequence, frames, shape, *rest) for sequence, frames in tasks]:
            done.result()


def _check_finished(folder: Path, shape: DataShape) -> None:
    try:
        found = json.loads((folder / FINISHED).read_text())
    except (OSError, ValueError):
        raise DeblurError(
            f"{folder} holds no finished data set ({FINISHED} missing); remove it or use --data"
        ) from None
    if found != asdict(shape):
        raise DeblurError(f"{folder} holds a data set of another shape; remove it or use --data")
