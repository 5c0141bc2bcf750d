"""How good the predictions are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Scores:
    """Share of images named right, and the F1 score averaged over the classes."""

    accuracy: float
    f1: float


def confusion(predicted: Labels, labels: Labels, classes: int) -> Labels:
    """How often each class (row) was named as which (column)."""
    counts = np.bincount(labels * classes + predicted, minlength=classes * classes)
    return counts.reshape(classes, classes)


def scores(matrix: Labels) -> Scores:
    """Accuracy and macro F1 of a confusion matrix."""
    right = np.diag(matrix)
    asked_or_named = matrix.sum(axis=0) + matrix.sum(axis=1)
    f1 = 2 * right / np.maximum(asked_or_named, 1)
    return Scores(float(right.sum() / max(matrix.sum(), 1)), float(f1.mean()))
