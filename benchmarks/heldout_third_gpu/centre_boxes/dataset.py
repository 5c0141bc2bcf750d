"""Pictures with bright boxes on them, as many as it happens."""

# mypy: ignore-errors

import numpy as np
import torch
from torch.utils.data import Dataset


class Boxes(Dataset):
    def __init__(self, length, side, classes):
        self.length, self.side, self.classes = length, side, classes
        rng = np.random.default_rng(70)
        self.backgrounds = rng.integers(0, 90, (64, 3, side, side), dtype=np.uint8)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        picture = self.backgrounds[index % 64].copy()
        count = int(rng.integers(4, 16))
        size = rng.integers(self.side // 16, self.side // 4, (count, 2))
        corner = (rng.random((count, 2)) * (self.side - size)).astype(np.int64)
        labels = rng.integers(0, self.classes, count)
        for (y, x), (h, w), label in zip(corner, size, labels, strict=True):
            picture[label % 3, y : y + h, x : x + w] = 120 + 10 * label
        boxes = np.concatenate([corner, corner + size], axis=1).astype(np.float32)
        return torch.from_numpy(picture), torch.from_numpy(boxes), torch.from_numpy(labels)


def collate(items):
    """Pictures are stacked; boxes and labels are padded, and a label of -1 marks the padding."""
    pictures, boxes, labels = zip(*items, strict=True)
    most = 16
    padded = torch.zeros(len(items), most, 4)
    classes = torch.full((len(items), most), -1)
    for i, (box, label) in enumerate(zip(boxes, labels, strict=True)):
        padded[i, : len(box)], classes[i, : len(label)] = box, label
    return torch.stack(pictures), padded, classes
