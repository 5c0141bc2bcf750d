"""Aerial scenes with cars, boats and tents, at most four objects in a scene."""

# mypy: ignore-errors
import numpy as np
import torch
from torch.utils.data import Dataset

SIDE, MOST = 128, 4
COLOURS = np.array([[0.9, 0.2, 0.2], [0.9, 0.9, 1.0], [0.2, 0.8, 0.3]], dtype=np.float32)


class Scenes(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.images = np.empty((count, 3, SIDE, SIDE), dtype=np.float32)
        self.boxes = np.zeros((count, MOST, 4), dtype=np.float32)
        self.labels = np.zeros((count, MOST), dtype=np.int64)
        for i in range(count):
            image = np.repeat(np.repeat(rng.random((3, 8, 8), dtype=np.float32), 16, 1), 16, 2) * 0.4
            for k in range(rng.integers(1, MOST + 1)):
                label = rng.integers(3)
                w, h = rng.integers(12, 44, 2)
                x, y = rng.integers(0, SIDE - w), rng.integers(0, SIDE - h)
                image[:, y : y + h, x : x + w] = COLOURS[label][:, None, None]
                self.boxes[i, k] = x / SIDE, y / SIDE, (x + w) / SIDE, (y + h) / SIDE
                self.labels[i, k] = label + 1
            self.images[i] = image

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i]), torch.from_numpy(self.boxes[i]), torch.from_numpy(self.labels[i])
