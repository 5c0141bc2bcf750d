"""The map in front of the car: its classes, its extent, and how polygons become a label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

CLASSES = (
    "background",
    "drivable_area",
    "ped_crossing",
    "walkway",
    "carpark",
    "car",
    "truck",
    "bus",
    "trailer",
    "pedestrian",
    "motorcycle",
    "bicycle",
    "traffic_cone",
    "barrier",
)

# Metres: x to the right, z ahead. 98 rows and 100 columns of half a metre.
X_RANGE = (-25.0, 25.0)
Z_RANGE = (1.0, 50.0)
CELL = 0.5
ROWS = round((Z_RANGE[1] - Z_RANGE[0]) / CELL)
COLUMNS = round((X_RANGE[1] - X_RANGE[0]) / CELL)

# Small things are drawn finer than the grid and then thinned, so that a cone does not vanish between two cells.
FINE = 4

Polygon = tuple[int, Sequence[tuple[float, float]]]


def rasterise(polygons: Sequence[Polygon]) -> npt.NDArray[np.int64]:
    """Class of every cell [row = distance, column = side], later polygons over earlier ones."""
    canvas = Image.new("L", (COLUMNS * FINE, ROWS * FINE), 0)
    draw = ImageDraw.Draw(canvas)
    for kind, points in polygons:
        corners = [((x - X_RANGE[0]) / CELL * FINE, (z - Z_RANGE[0]) / CELL * FINE) for x, z in points]
        draw.polygon(corners, fill=kind)
    fine = np.asarray(canvas).reshape(ROWS, FINE, COLUMNS, FINE)
    return fine[:, FINE // 2, :, FINE // 2].astype(np.int64)
