"""Evaluation over the validation half."""

from __future__ import annotations

import numpy as np
from torch.utils.data import DataLoader

from bev.dataset import Sample
from bev.grid import CLASSES
from bev.metrics import confusion, mean_iou
from bev.runner import Runner


def evaluate(runner: Runner, loader: DataLoader[Sample]) -> float:
    """mIoU of the model as it is now."""
    runner.model.eval()
    matrix = np.zeros((len(CLASSES), len(CLASSES)), dtype=np.int64)
    for data in loader:
        batch = runner.to_device(data)
        with runner.autocast():
            predicted = runner.model.predict(batch)
        matrix += confusion(predicted.cpu().numpy(), batch["label"].cpu().numpy(), len(CLASSES))
    runner.model.train()
    return mean_iou(matrix)
