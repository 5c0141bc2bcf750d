"""The folder of images: makes it when it is missing, reads it, says what is wrong with it."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from graycnn.errors import UsageError
from graycnn.sizes import SIZES, Size
from graycnn.surfaces import CLASSES, draw_surface

DATA_SEED = 20_004
MARKER = "complete.json"
LABELS = "labels.csv"
PER_PROCESS = 256  # fewer images are not worth a process


@dataclass(frozen=True, slots=True)
class Split:
    """Image files and their labels, in the same order."""

    paths: tuple[str, ...]
    labels: tuple[int, ...]
    pixels: int

    def __len__(self) -> int:
        return len(self.paths)


def open_images(data: Path, size_name: str, processes: int) -> tuple[Split, Split]:
    """Training and validation images under `data`, made first if they are not there."""
    size = SIZES[size_name]
    folder = data / size.name
    try:
        if not folder.exists():
            make_images(folder, size, processes)
        check_marker(folder, size)
        return read_labels(folder, size)
    except OSError as error:
        raise UsageError(f"cannot use the data folder {str(folder)!r} ({error}); choose another --data") from None


def make_images(folder: Path, size: Size, processes: int) -> None:
    """Draw every image into a folder beside `folder`, then move it there in one go."""
    unfinished = folder.with_name(f"{folder.name}.unfinished-{os.getpid()}")
    try:
        unfinished.mkdir(parents=True)
        processes = max(1, min(processes, size.images // PER_PROCESS))
        parts = [range(start, size.images, processes) for start in range(processes)]
        if processes == 1:
            draw_images(unfinished, size, parts[0])
        else:
            with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
                list(pool.map(draw_images, [unfinished] * processes, [size] * processes, parts))
        with open(unfinished / LABELS, "w", newline="") as file:
            csv.writer(file).writerows([image_name(i), CLASSES[label_of(i)]] for i in range(size.images))
        (unfinished / MARKER).write_text(json.dumps(parameters(size)))
        unfinished.rename(folder)
    except OSError:
        # Another run may have finished the same images meanwhile; those are as good.
        if not (folder / MARKER).exists():
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def draw_images(folder: Path, size: Size, numbers: range) -> None:
    """Draw and store the images with these numbers."""
    for number in numbers:
        rng = np.random.default_rng((DATA_SEED, number))
        Image.fromarray(draw_surface(label_of(number), size.pixels, rng)).save(folder / image_name(number))


def parameters(size: Size) -> dict[str, int]:
    """What the images depend on."""
    return {"data_seed": DATA_SEED, "images": size.images, "pixels": size.pixels, "classes": len(CLASSES)}


def image_name(number: int) -> str:
    return f"{number:05d}.png"


def label_of(number: int) -> int:
    return number % len(CLASSES)


def check_marker(folder: Path, size: Size) -> None:
    """Refuse a folder that is not a finished set of these very images."""
    try:
        found = json.loads((folder / MARKER).read_text())
    except (FileNotFoundError, ValueError):
        raise UsageError(f"{str(folder)!r} is no finished image folder; remove it or choose another --data") from None
    if found != parameters(size):
        raise UsageError(f"{str(folder)!r} holds other images ({found}); remove it or choose another --data")


def read_labels(folder: Path, size: Size) -> tuple[Split, Split]:
    """The table of labels, cut into training and validation."""
    table = folder / LABELS
    try:
        with open(table, newline="") as file:
            rows = [(str(folder / name), CLASSES.index(label)) for name, label in csv.reader(file)]
    except (FileNotFoundError, ValueError):
        rows = []
    if len(rows) != size.images:
        raise UsageError(f"{str(table)!r} is missing or damaged; remove {str(folder)!r} to have it made again")
    paths, labels = zip(*rows, strict=True)
    cut = size.training
    return Split(paths[:cut], labels[:cut], size.pixels), Split(paths[cut:], labels[cut:], size.pixels)


def read_image(path: str, pixels: int) -> Image.Image:
    """One grey image, decoded."""
    try:
        with Image.open(path) as image:
            image.load()
    except FileNotFoundError:
        raise UsageError(f"image {path!r} is missing; remove its folder to have it made again") from None
    except (OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"image {path!r} cannot be read ({error}); remove its folder to have it made again") from None
    if image.mode != "L" or image.size != (pixels, pixels):
        raise UsageError(f"image {path!r} is not {pixels}×{pixels} and grey; remove its folder to have it made again")
    return image
