"""Mean intersection over union."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def confusion(predicted: npt.NDArray[np.int64], label: npt.NDArray[np.int64], classes: int) -> npt.NDArray[np.int64]:
    """How often class [row] was predicted as class [column]."""
    pairs = label.ravel() * classes + predicted.ravel()
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def mean_iou(matrix: npt.NDArray[np.int64]) -> float:
    """Mean over the classes that occur, in the label or in the prediction."""
    hits = np.diag(matrix).astype(np.float64)
    union = matrix.sum(0) + matrix.sum(1) - hits
    return float((hits[union > 0] / union[union > 0]).mean())
