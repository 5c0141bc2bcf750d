"""Makes the data set: a folder of JPEG images, each with its camera and its map polygons in a JSON file."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bev.errors import UserError
from bev.scene import random_scene, render

DATA_SEED = 2002
MARKER = "complete.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """How many images of which size."""

    train: int
    val: int
    height: int
    width: int
    version: int = 1


def ensure_data(folder: Path, plan: Plan, workers: int) -> Path:
    """The folder with the finished data, made now if it is not there."""
    marker = folder / MARKER
    if marker.exists():
        try:
            made = json.loads(marker.read_text())
        except ValueError:
            made = None
        if made == asdict(plan):
            return folder
        raise UserError(f"{folder} holds other data ({made}); remove it or choose another --data")
    if folder.exists():
        raise UserError(f"{folder} has no {MARKER}, so it is not finished data; remove it or choose another --data")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise UserError(f"cannot make data in {folder.parent}: {error.strerror}; choose another --data") from None
    try:
        _make(fresh, plan, workers)
        (fresh / MARKER).write_text(json.dumps(asdict(plan)))
        fresh.chmod(0o755)
        os.replace(fresh, folder)
    except OSError:
        # Another run may have finished the same folder first; then its data is as good.
        if not marker.exists():
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _make(folder: Path, plan: Plan, workers: int) -> None:
    jobs = []
    for part, (split, count) in enumerate([("train", plan.train), ("val", plan.val)]):
        (folder / split).mkdir()
        jobs += [(folder / split / f"{index:06d}", (DATA_SEED, part, index)) for index in range(count)]
    # fork: a spawned process would import the training script and torch again.
    with ProcessPoolExecutor(max(1, min(workers, len(jobs))), multiprocessing.get_context("fork")) as pool:
        list(pool.map(_make_one, *zip(*jobs, strict=True), [plan] * len(jobs), chunksize=4))


def _make_one(stem: Path, seed: tuple[int, ...], plan: Plan) -> None:
    rng = np.random.default_rng(seed)
    scene = random_scene(rng, plan.width, plan.height)
    render(scene, rng, plan.width, plan.height).save(stem.with_suffix(".jpg"), quality=93)
    record = {
        "intrinsics": scene.intrinsics.tolist(),
        "camera_to_ego": scene.camera_to_ego.tolist(),
        "polygons": scene.polygons(),
    }
    stem.with_suffix(".json").write_text(json.dumps(record))
