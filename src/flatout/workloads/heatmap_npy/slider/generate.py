"""Draws the captchas and writes them as NPY batches, targets included."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from slider.config import POINTS, DataConfig
from slider.errors import SliderError

Array = npt.NDArray[np.float32]

SPLITS = ("train", "val", "test")
ARRAYS = ("images", "heatmaps", "offsets", "points")
MARKER = "dataset.json"
DATA_SEED = 2025
VERSION = 1


def array_shapes(data: DataConfig) -> dict[str, tuple[int, ...]]:
    """What each file of a batch holds."""
    count = data.batch_size
    return {
        "images": (count, 2, data.height, data.width),
        "heatmaps": (count, POINTS, *data.map_size),
        "offsets": (count, 2 * POINTS, *data.map_size),
        "points": (count, POINTS, 2),
    }


def batch_path(folder: Path, split: str, index: int, array: str) -> Path:
    return folder / split / f"batch_{index:03d}_{array}.npy"


def dataset_folder(root: Path, size: str, data: DataConfig) -> Path:
    return root / f"{size}-{data.train_files}x{data.batch_size}"


def prepare(root: Path, size: str, data: DataConfig, workers: int) -> Path:
    """The folder of the data; made first when there is none."""
    folder = dataset_folder(root, size, data)
    wanted = {"version": VERSION, "seed": DATA_SEED, **_drawn(data)}
    if not (folder / MARKER).exists():
        _make(folder, wanted, data, workers)
    _verify(folder, wanted, data)
    return folder


def _drawn(data: DataConfig) -> dict[str, int]:
    return {key: value for key, value in asdict(data).items() if key != "calibration_files"}


def _counts(data: DataConfig) -> dict[str, int]:
    return {"train": data.train_files, "val": data.val_files, "test": data.test_files}


def _verify(folder: Path, wanted: dict[str, int], data: DataConfig) -> None:
    way_out = f"delete {str(folder)!r} to make the data again, or pass another --data"
    try:
        found = json.loads((folder / MARKER).read_text())
    except (OSError, ValueError):
        raise SliderError(f"{str(folder / MARKER)!r} is unreadable; {way_out}") from None
    if found != wanted:
        raise SliderError(f"{str(folder)!r} was made with other settings; {way_out}")
    for split, count in _counts(data).items():
        for index in range(count):
            for array in ARRAYS:
                path = batch_path(folder, split, index, array)
                if not path.is_file():
                    raise SliderError(f"data file {str(path)!r} is missing; {way_out}")


def _make(folder: Path, wanted: dict[str, int], data: DataConfig, workers: int) -> None:
    print(f"making data in {folder}", flush=True)
    part = folder.with_name(f".{folder.name}.{os.getpid()}")
    jobs = [(split, index) for split, count in _counts(data).items() for index in range(count)]
    try:
        for split in SPLITS:
            (part / split).mkdir(parents=True, exist_ok=True)
        with ProcessPoolExecutor(min(workers, len(jobs))) as pool:
            list(pool.map(partial(_write_batch, part, data), jobs))
        (part / MARKER).write_text(json.dumps(wanted))
        part.rename(folder)
    except OSError as error:
        # Another run may have finished the same data meanwhile.
        if not (folder / MARKER).exists():
            reason = error.strerror or str(error)
            raise SliderError(f"cannot make data in {str(folder)!r}: {reason}; pass another --data") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_batch(folder: Path, data: DataConfig, job: tuple[str, int]) -> None:
    split, index = job
    rng = np.random.default_rng([DATA_SEED, SPLITS.index(split), index])
    images, points = draw_captchas(rng, data)
    heatmaps, offsets = draw_targets(points, data)
    for array, values in zip(ARRAYS, (images, heatmaps, offsets, points), strict=True):
        np.save(batch_path(folder, split, index, array), values)


def draw_captchas(rng: np.random.Generator, data: DataConfig) -> tuple[Array, Array]:
    """Pictures with a dark gap and a bright piece at the same height, and the centres of both in pixels (x, y)."""
    height, width = data.height, data.width
    side = height // 6
    # As far from the border as the cap around a point reaches.
    margin = (data.radius + 1) * data.stride
    images = np.empty((data.batch_size, 2, height, width), np.float32)
    points = np.empty((data.batch_size, POINTS, 2), np.float32)
    grain = 0.06 * rng.standard_normal((height, 2 * width), np.float32)
    for image, point in zip(images, points, strict=True):
        y = int(rng.integers(margin, height - margin))
        gap_x = int(rng.integers(width // 2, width - margin))
        piece_x = int(rng.integers(margin, width // 2 - side))
        grey = image[0]
        start = int(rng.integers(0, width))
        np.add(_background(rng, height, width), grain[:, start : start + width], out=grey)
        _square(grey, gap_x, y, side)[:] *= np.float32(0.35)
        _square(grey, piece_x, y, side)[:] += np.float32(0.6)
        image[1] = 0
        np.abs(grey[:, 1:] - grey[:, :-1], out=image[1, :, 1:])
        point[:] = [[gap_x, y], [piece_x, y]]
    return images, points


def _background(rng: np.random.Generator, height: int, width: int) -> Array:
    """Large and small patches of light."""
    coarse = 0.3 + 0.4 * rng.random((4, 8), np.float32)
    fine = 0.2 * rng.random((height // 8, width // 8), np.float32)
    patches = coarse.repeat(height // 32, 0).repeat(width // 64, 1) + fine
    return patches.repeat(8, 0).repeat(8, 1)


def _square(grey: Array, x: int, y: int, side: int) -> Array:
    half = side // 2
    return grey[max(0, y - half) : y + half + 1, max(0, x - half) : x + half + 1]


def draw_targets(points: Array, data: DataConfig) -> tuple[Array, Array]:
    """For every point a paraboloid cap in its heatmap and, in the cell that holds it, its place inside the cell.

    A cap ends at zero by itself, so nothing is cut off at the edge of its window as with a Gaussian.
    """
    rows, columns = data.map_size
    heatmaps = np.zeros((len(points), POINTS, rows, columns), np.float32)
    offsets = np.zeros((len(points), 2 * POINTS, rows, columns), np.float32)
    scale = np.float32(1 / (data.radius + 1) ** 2)
    for sample in range(len(points)):
        for k in range(POINTS):
            px, py = points[sample, k] / np.float32(data.stride)
            cx, cy = int(px), int(py)
            x = np.arange(max(0, cx - data.radius), min(columns, cx + data.radius + 1), dtype=np.float32)
            y = np.arange(max(0, cy - data.radius), min(rows, cy + data.radius + 1), dtype=np.float32)
            squared = np.square(x - px)[None, :] + np.square(y - py)[:, None]
            cap = np.maximum(np.float32(1) - squared * scale, np.float32(0))
            heatmaps[sample, k, int(y[0]) : int(y[-1]) + 1, int(x[0]) : int(x[-1]) + 1] = cap
            heatmaps[sample, k, cy, cx] = 1
            offsets[sample, 2 * k : 2 * k + 2, cy, cx] = px - np.float32(cx), py - np.float32(cy)
    return heatmaps, offsets
