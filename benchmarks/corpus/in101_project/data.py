"""Volumes and their loader."""
# mypy: ignore-errors

import zlib

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SHAPE = (24, 64, 64)


class Volumes(Dataset):
    """Compressed scans, with their intensity histogram equalised on reading."""

    def __init__(self, blobs):
        self.blobs = blobs

    def __len__(self):
        return len(self.blobs)

    def __getitem__(self, index):
        scan = np.frombuffer(zlib.decompress(self.blobs[index]), np.uint8).reshape(SHAPE)
        counts = np.bincount(scan.ravel(), minlength=256).cumsum()
        equal = (counts / counts[-1])[scan].astype(np.float32)
        return {"scan": torch.from_numpy(equal), "label": torch.tensor(index % 4), "id": f"case-{index}"}


def make_loader(blobs, batch_size, num_workers):
    return DataLoader(  # guilty
        Volumes(blobs),
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
    )
