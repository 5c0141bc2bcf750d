"""Scores of a segmentation."""
# mypy: ignore-errors

import numpy as np
import torch


class Overlap:
    """Mean intersection over union, kept on the host."""

    def __init__(self, classes):
        self.table = np.zeros((classes, classes))
        self.classes = classes

    def update(self, logits, target):
        found = logits.argmax(1).cpu().numpy()  # guilty
        target = target.cpu().numpy()  # guilty
        pairs = self.classes * target.ravel() + found.ravel()
        self.table += np.bincount(pairs, minlength=self.classes**2).reshape(self.table.shape)


class OverlapOnDevice:
    """The same, where the numbers are."""

    def __init__(self, classes, device):
        self.table = torch.zeros(classes * classes, device=device)
        self.classes = classes

    def update(self, logits, target):
        pairs = (self.classes * target + logits.argmax(1)).flatten()
        self.table.scatter_add_(0, pairs, torch.ones_like(pairs, dtype=self.table.dtype))
