"""Data for the scripts of the corpus, made before their training starts."""
# mypy: ignore-errors

import io
import json
import random
import zlib
from pathlib import Path

import numpy as np


def jpegs(folder, count, side, seed=0):
    """`count` JPEG files of smooth noise; returns their paths."""
    from PIL import Image

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    source = np.random.default_rng(seed)
    paths = []
    for i in range(count):
        small = Image.fromarray(source.integers(0, 255, (12, 12, 3), dtype=np.uint8))
        path = folder / f"{i:05d}.jpg"
        small.resize((side, side), Image.BILINEAR).save(path, quality=90)
        paths.append(path)
    return paths


def packed(count, shape, seed=0):
    """Compressed arrays of bytes, as a list."""
    source = np.random.default_rng(seed)
    values = (source.integers(0, 40, shape, dtype=np.uint8) for _ in range(count))
    return [zlib.compress(value.tobytes(), 6) for value in values]


def array_files(folder, count, shape, seed=0):
    """`count` .npy files of floats; returns their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    source = np.random.default_rng(seed)
    paths = [folder / f"{i:05d}.npy" for i in range(count)]
    for path in paths:
        np.save(path, source.standard_normal(shape, dtype=np.float32))
    return paths


def json_lines(path, count, width, seed=0):
    """A file of JSON records with `width` numbers each."""
    source = random.Random(seed)
    with open(path, "w") as out:
        for i in range(count):
            values = [round(source.random(), 6) for _ in range(width)]
            out.write(json.dumps({"id": i, "values": values, "label": i % 10}) + "\n")
    return Path(path)


def sentences(count, low, high, words=5000, seed=0):
    """Strings of `low` to `high` made-up words."""
    source = random.Random(seed)
    known = ["".join(source.choices("abcdefghij", k=source.randint(2, 9))) for _ in range(words)]
    return [" ".join(source.choices(known, k=source.randint(low, high))) for _ in range(count)]


def npy_bytes(array):
    """An array as the bytes of a .npy file."""
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()
